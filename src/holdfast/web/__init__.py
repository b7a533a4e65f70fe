"""The API: what programs and browsers ask for over HTTP, guarded, each a thin call of `control`."""
