"""The walk of a URL: claim, visit, gate, fetch, archive, parse, links, commit, release."""
