"""Items that parsers found, and the filter of their list."""
