"""A service that keeps what a platform's tasks came to, from a leased subscription: each result once."""
