"""Bytes into durable WARC records, and back.

`segments` writes and `reading` reads; `warc` and `head` say what a record looks like, `segment` is one file on the disk.
"""
