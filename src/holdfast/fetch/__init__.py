"""The network: one request in, one `FetchResult` out, never an exception for what the web does."""
