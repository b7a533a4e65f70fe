"""Sitemaps that were read, and whether the dates in those of a domain can be trusted."""

from datetime import datetime

from holdfast.model.record import Int64, record


@record
class ReadSitemap:
    """A sitemap or a feed, as it was read last."""

    url: str
    domain: str
    job: str
    format: str | None
    """`urlset`, `index`, `rss`, `atom` or `text`; null: it is none that can be read."""
    entries: Int64
    """URLs and sitemaps that it lists."""
    skipped: Int64
    """Entries that are no URL, or more than a sitemap may have."""
    bytes: Int64
    """Its size, unpacked."""
    read_at: datetime
    problem: str | None
    """Why it was read only in part, or not at all."""


@record
class LastmodTrust:
    """Whether the `lastmod` of a domain's sitemaps can be trusted: what its pages did in the last crawl of the job that read them."""

    job: str
    trust: str
    """`trusted`, `untrusted`, or `unknown` (too few of its pages were fetched twice)."""
    generated: bool
    """The dates are those of the generation of the sitemap, or all the same: they say nothing about its pages."""
    newer_changed: int
    """Pages with a `lastmod` after the beginning of the crawl before, and with other content."""
    newer_unchanged: int
    """Likewise, with the same content: fetched for nothing."""
    older_changed: int
    """Pages with an older `lastmod` and with other content: changes that were not announced."""
    older_unchanged: int

    @property
    def sentence(self) -> str:
        """The verdict with its numbers, without a subject and a full stop."""
        right, wrong = self.newer_changed + self.older_unchanged, self.newer_unchanged + self.older_changed
        if self.generated:
            return "cannot be trusted: nearly all dates are the time at which the sitemap was made, or all are the same"
        if self.trust == "trusted":
            return f"can be trusted: {right:,} of {right + wrong:,} announced or silent changes were right"
        counts = (
            f"{self.older_changed:,} changed without a newer date, {self.newer_unchanged:,} had one and were unchanged"
        )
        if self.trust == "untrusted":
            return f"cannot be trusted: of {right + wrong:,} pages that were fetched again {counts}"
        return f"is not known to be right or wrong yet: {right + wrong:,} of its pages were fetched again ({counts})"
