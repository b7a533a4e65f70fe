"""HTTP fetching on libcurl: one request in, one `FetchResult` out; a failure of the network is a value, not an exception."""
