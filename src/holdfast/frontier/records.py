"""URLs of the frontier, and the filter of their list."""
