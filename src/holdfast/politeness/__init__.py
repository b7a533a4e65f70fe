"""Politeness decisions: pure functions of their arguments and of the time that the caller passes."""
