"""Tasks and batches, and the filter of their list."""
