"""Where the delay between two requests to a domain comes from."""

from enum import StrEnum


class DelaySource(StrEnum):
    """The reason for the delay in force."""

    ROBOTS = "robots"
    """Crawl-delay of its robots.txt."""
    DOMAIN = "domain"
    """A person set it for the domain."""
    JOB = "job"
    """The job asks for it."""
    DEFAULT = "default"
    """`domains.crawl_delay` of the settings."""
    LEARNT = "learnt"
    """The server answers more slowly than it did, and is asked less often."""
