"""What a page means: bytes in, `Parsed` out."""
