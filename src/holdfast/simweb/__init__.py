"""A web made up on the spot: seeded, endless, hostile where it is told to be, with an access log of its own."""
