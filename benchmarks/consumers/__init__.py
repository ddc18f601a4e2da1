"""Consumers that are compared, one a file, each a program of its own with the command line of `contract`."""
