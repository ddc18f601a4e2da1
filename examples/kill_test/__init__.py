"""A service with a test that kills it."""
