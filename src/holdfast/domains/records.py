"""Domains, and the filter of their list."""
