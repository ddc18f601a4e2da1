"""Suites that every adapter of a port runs whole."""
