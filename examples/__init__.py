"""Runnable programs. Each is run by the tests."""
