"""A web service that consumes events beside its routes."""
