"""Pages, and the filter of their list."""
