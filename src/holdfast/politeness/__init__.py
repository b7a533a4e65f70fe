"""Decisions: pure functions of values and the present time."""
