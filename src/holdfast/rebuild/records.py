"""Rebuilt counters: what differed from the log and the frontier, and what it is now."""

from holdfast.model.record import Int64, record


@record
class CounterChange:
    """A counter that differed."""

    table: str
    """`domains`, `job_domains` or `crawl_runs`."""
    name: str
    """The domain, the domain and its job, or the run."""
    counter: str
    before: Int64
    after: Int64


@record
class RebuiltCounters:
    """What a rebuild of counters did, or would do."""

    dry_run: bool
    domains: int
    """Domains that were looked at."""
    runs: int
    """Runs that were looked at: those that have ended."""
    different: int
    """Domains and runs with a counter that differed."""
    held: list[str]
    """Domains with a counter that differs, which a worker holds: they were left alone."""
    changes: list[CounterChange]
    """The first changes."""
    changed: int
    """All changes."""
