"""A billing service that believes nobody: it is paid for Fetcher's jobs, once each, and remembers those that failed."""
