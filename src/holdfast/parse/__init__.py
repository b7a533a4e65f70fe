"""Parsing: the page parser (bytes to `Parsed`), charset detection, structured data, and parser plug-ins."""
