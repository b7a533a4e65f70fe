"""The crawl of a URL: claim, visit, gate, fetch, parse, links, archive, commit, release."""
