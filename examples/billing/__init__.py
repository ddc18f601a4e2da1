"""A billing service that is paid for finished extraction jobs, once each."""
