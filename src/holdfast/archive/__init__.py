"""Bytes into durable WARC records, and back."""
