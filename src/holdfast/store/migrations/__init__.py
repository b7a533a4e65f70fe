"""The schema's history: one revision a file, its SQL beside it, up and down."""
