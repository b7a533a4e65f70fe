"""The WARC archive: exchanges to durable records and back.

`writer` writes and `reader` reads; `warc` and `http_head` define the format of a record, `segment_file` is one file on disk.
"""
