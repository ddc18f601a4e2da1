"""A handler that is not safe, and the same one mended."""
