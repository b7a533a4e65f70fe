"""Settings of retention: how long what is kept, and where it is archived before it is deleted.

The rule: 0 keeps forever. What belongs to the memory of a live job is kept whatever is set here (docs/retention.md).
"""

from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from holdfast.errors import UsageError
from holdfast.settings.crawling import ObjectStoreOptions, store_place
from holdfast.settings.field_types import Duration

_DAY: Final = timedelta(days=1)


def _schedule(text: str | None) -> str | None:
    if text is not None:
        from holdfast.model import schedule  # here: the client needs no cron

        try:
            schedule.parse(text)
        except UsageError as problem:
            raise ValueError(f"must be a schedule: {str(problem).rstrip('.')}") from None
    return text


_Schedule = Annotated[str | None, AfterValidator(_schedule)]


class Retention(ObjectStoreOptions):
    """How long what is kept, and where it is archived before it is deleted. A period of 0 = forever."""

    schedule: _Schedule = Field(
        default=None,
        description="When retention runs by itself: five fields of cron, perhaps with a time zone (`0 3 * * *` is three in the morning, "
        "UTC), or an interval; not set = never, only by `holdfast retention run`.",
    )
    frontier_completed: Duration = Field(
        default=7 * _DAY,
        description="How long after the end of its job a URL is kept that is done or denied and led to no page.",
    )
    frontier_failed: Duration = Field(
        default=30 * _DAY, description="How long after the end of its job a URL is kept that failed and led to no page."
    )
    pages: Duration = Field(
        default=90 * _DAY,
        description="How long after the end of its job a page is kept, with its URL, links, items and versions.",
    )
    content: Duration = Field(
        default=30 * _DAY,
        description="How long after the end of their job texts, documents and files of the archive (WARC) are kept.",
    )
    versions: Duration = Field(
        default=90 * _DAY, description="How long an earlier version of a page is kept after it was replaced."
    )
    crawl_log: Duration = Field(
        default=90 * _DAY,
        description="How long the log of requests is kept, week by week; its sums are kept forever.",
    )
    tasks: Duration = Field(
        default=90 * _DAY, description="How long a task that ended is kept; the newest one of a URL always is."
    )
    history: Duration = Field(
        default=365 * _DAY,
        description="How long ended claims and changes of the status of domains are kept, never less than the log.",
    )
    audit: Duration = Field(default=365 * _DAY, description="How long the audit log is kept.")
    webhooks: Duration = Field(
        default=30 * _DAY, description="How long messages are kept that were delivered or given up."
    )
    images: Duration = Field(
        default=90 * _DAY,
        description="How long it is kept which images a page shows, from when they were last seen, on domains without a live job.",
    )
    archive_segments: bool = Field(
        default=True,
        description="Copy files of the archive (WARC) to the store of archives before they are deleted; false = delete them for good.",
    )
    store: Annotated[str | None, AfterValidator(store_place)] = Field(
        default=None,
        description="Where archives go: a folder, or `s3://bucket/prefix` for an S3-compatible store; not set = `retention` in `data`.",
    )
    format: Literal["parquet", "csv"] = Field(
        default="parquet", description="The format of archived rows: Parquet (zstd), or CSV (gzip)."
    )
    vacuum: _Schedule = Field(
        default="0 4 * * sun",
        description="When the background vacuums and analyzes all tables; not set = never, only PostgreSQL's autovacuum.",
    )

    def periods(self) -> dict[str, timedelta]:
        """The periods by name, without those that are forever."""
        names = (
            *("frontier_completed", "frontier_failed", "pages", "content", "versions", "crawl_log", "tasks"),
            *("history", "audit", "webhooks", "images"),
        )
        return {name: value for name in names if (value := getattr(self, name))}
