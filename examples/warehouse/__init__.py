"""A warehouse that takes orders with a consumer of its own, and reserves each once."""
