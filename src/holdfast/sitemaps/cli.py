"""Sitemaps on the terminal: the table that commands on jobs and domains print."""

from collections.abc import Sequence

from holdfast.cli import output
from holdfast.sitemaps.records import ReadSitemap


def print_sitemaps(sitemaps: Sequence[ReadSitemap]) -> None:
    """Print sitemaps that were read, with what is wrong with one below it."""
    output.print_line("\nSitemaps, those with a problem first")
    notes = {i: f"problem: {one.problem}" for i, one in enumerate(sitemaps) if one.problem}
    rows = [(output.format_time(one.read_at), one.format or "-", one.entries, one.url) for one in sitemaps]
    output.print_table(["READ", "FORMAT", "ENTRIES", "URL"], rows, notes, right="ENTRIES")
