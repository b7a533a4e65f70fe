"""A simulated web: generated from a seed, hostile where the spec says so, with an access log.

`spec` describes a web and `presets` has named ones, `site` computes the responses and the pages that a complete crawl must find, `server`
and `connection` serve them, `process` runs the server as a child process, `access_log` records the requests, and `log_checks` checks the
log. `proxy` is a proxy that fails on command; `proxy_protocol`, `proxy_log` and `proxy_process` belong to it.
"""
