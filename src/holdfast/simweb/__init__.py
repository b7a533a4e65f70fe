"""A web made up on the spot: seeded, endless, hostile where it is told to be, with an access log of its own.

`plan` says what there is and `presets` name some, `site` says what is answered and what a complete crawl must find, `server` and
`connection` serve it, `process` runs that beside us, `log` keeps what the sites saw, and `judge` says what that proves.
`proxy` is a proxy before it that fails when it is told to; `proxy_talk`, `proxy_log` and `proxy_process` are to it what those are to the
web.
"""
