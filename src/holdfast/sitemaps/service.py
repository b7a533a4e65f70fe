"""Whether the `lastmod` of a domain's sitemaps can be trusted, derived from its last two crawls.

The rule: the verdict is shown, and nothing is skipped by it.
"""

from holdfast.db.connection import Connection
from holdfast.politeness.sitemap_trust import LastmodEvidence, Trust, is_generated
from holdfast.sitemaps import queries
from holdfast.sitemaps.records import LastmodTrust


def lastmod_trust(connection: Connection, domain_id: int) -> LastmodTrust | None:
    """Judge the `lastmod` of a domain's sitemaps by the first job that fetched pages with one again; None: there is none."""
    for crawls in queries.crawls_of(connection, domain_id):
        pages = queries.dated_pages(connection, domain_id, crawls)
        again = [page for page in pages if page.again]
        if not again:
            continue
        generated = is_generated((page.lastmod for page in pages), crawls.read_at)
        evidence = LastmodEvidence()
        for page in again:
            evidence = evidence.record(newer=page.lastmod > crawls.previous_started_at, changed=page.changed)
        return LastmodTrust(
            job=crawls.job,
            trust=Trust.UNTRUSTED if generated else evidence.trust(),
            generated=generated,
            newer_changed=evidence.newer_changed,
            newer_unchanged=evidence.newer_unchanged,
            older_changed=evidence.older_changed,
            older_unchanged=evidence.older_unchanged,
        )
    return None
