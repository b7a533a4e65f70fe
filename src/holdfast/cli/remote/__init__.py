"""The desks of a server, for commands that ask one: the same methods as those of `control`, and the same rows.

The rule: a command does not notice whom it asks. What a server does not say of a row is None in it.
"""
