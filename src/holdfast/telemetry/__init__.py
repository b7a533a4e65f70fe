"""Logs, measures and clocks."""
