"""SQL that keeps replaced answers as versions of their page, as parts of the statement that writes the outcomes of URLs.

The rule: a version is stored in the transaction that replaces it, and only if the content differs: a first crawl and an unchanged page
store none. The last answer is in `crawled_pages`. An error is no content: the page that it replaced is the newest version until the URL
answers with a page again, which takes that version back if it has the same content.
"""

from typing import Final

from holdfast.model.outcome import PAGES, Outcome

VERSIONS: Final = 20
"""Versions of a page that are kept beside the last answer, unless the settings say otherwise."""

PAGE_OUTCOMES: Final = "({})".format(", ".join(f"'{outcome}'" for outcome in sorted(PAGES)))
"""Outcomes that are a page, as a list in SQL."""

_CONTENT: Final = (
    *(
        "crawled_at",
        "status",
        "outcome",
        "title",
        "content_type",
        "charset",
        "content_length",
        "content_hash",
        "noindex",
    ),
    *("archive_segment", "archive_offset", "archive_length", "payload_digest"),
)
_COLUMNS: Final = ", ".join(_CONTENT)


def _differ(one: str, other: str) -> str:
    """Whether two answers have different content: by the hash of the text, else of the bytes, else by their length."""
    return (
        f"CASE WHEN {one}.content_hash IS NOT NULL AND {other}.content_hash IS NOT NULL"
        f" THEN {one}.content_hash <> {other}.content_hash"
        f" WHEN {one}.payload_digest IS NOT NULL AND {other}.payload_digest IS NOT NULL"
        f" THEN {one}.payload_digest <> {other}.payload_digest"
        f" ELSE {one}.content_length <> {other}.content_length END"
    )


_SAME_URL: Final = "{0}.domain_id = {1}.domain_id AND {0}.job_id = {1}.job_id AND {0}.url_key = {1}.url_key"

CRAWLS: Final = """
    SELECT j.job_id, c.id AS crawl_id, EXISTS (SELECT FROM crawls b WHERE b.job_id = j.job_id AND b.id < c.id) AS again
    FROM (SELECT DISTINCT job_id FROM changed WHERE has_row) j
    CROSS JOIN LATERAL (SELECT max(id) AS id FROM crawls WHERE job_id = j.job_id) c
"""
"""The last crawl of each job of a batch, and whether it is a later one than the first."""

NEW_IN_CRAWL: Final = f"CASE WHEN outcome IN {PAGE_OUTCOMES} AND again THEN crawl_id END"
"""The value of a URL that had no answer before. `crawl_of` is joined."""

# `p` is the answer that is replaced, `excluded` the new one.
STILL_NEW_IN_CRAWL: Final = f"""
CASE WHEN excluded.outcome = '{Outcome.NOT_FOUND}' THEN NULL
     WHEN excluded.outcome NOT IN {PAGE_OUTCOMES} OR p.outcome IN {PAGE_OUTCOMES} THEN p.new_in_crawl
     WHEN p.outcome <> '{Outcome.NOT_FOUND}' AND EXISTS (SELECT FROM page_versions v WHERE {_SAME_URL.format("v", "p")})
     THEN p.new_in_crawl
     ELSE excluded.new_in_crawl END
"""
"""The value of a URL that had an answer before: of a page that was a page, also before an error, it stays."""

# The snapshot of the statement has the answers that it replaces. Before: `changed` has each URL once, on domains that passed the fence.
STORE_REPLACED: Final = f"""
replaced AS MATERIALIZED (
    SELECT s.domain_id, s.job_id, s.url_key, s.crawled_at AS replaced_at, c.crawl_id,
           CASE WHEN p.outcome NOT IN {PAGE_OUTCOMES} THEN CASE p.outcome WHEN '{Outcome.NOT_FOUND}' THEN 'back' END
                WHEN s.outcome IN {PAGE_OUTCOMES} THEN 'changed'
                WHEN s.outcome = '{Outcome.NOT_FOUND}' THEN 'gone' ELSE 'failed' END AS change,
           v.number AS last_number, v.change = 'failed' AS last_failed, {_differ("v", "s")} AS last_differs,
           {", ".join(f"p.{name}" for name in _CONTENT)}
    FROM changed s JOIN crawl_of c ON c.job_id = s.job_id JOIN crawled_pages p ON {_SAME_URL.format("p", "s")}
    LEFT JOIN LATERAL (
        SELECT * FROM page_versions v WHERE {_SAME_URL.format("v", "p")} ORDER BY v.number DESC LIMIT 1
    ) v ON true
    WHERE s.has_row AND s.outcome <> '{Outcome.NOT_MODIFIED}' AND %(versions)s::integer > 0
      AND CASE WHEN p.outcome IN {PAGE_OUTCOMES} THEN s.outcome NOT IN {PAGE_OUTCOMES} OR {_differ("p", "s")}
               ELSE s.outcome IN {PAGE_OUTCOMES} END
), versions AS (
    INSERT INTO page_versions (domain_id, job_id, url_key, number, replaced_at, crawl_id, change, {_COLUMNS})
    SELECT domain_id, job_id, url_key, COALESCE(last_number, 0) + 1, replaced_at, crawl_id, change, {_COLUMNS}
    FROM replaced WHERE change <> 'back' OR (change = 'back' AND last_number IS NOT NULL) ORDER BY domain_id, job_id, url_key
), trimmed AS (
    DELETE FROM page_versions v USING replaced r
    WHERE {_SAME_URL.format("v", "r")} AND r.change IS NOT NULL AND v.number <= r.last_number + 1 - %(versions)s::integer
), recovered AS (
    UPDATE page_versions v SET change = 'changed', crawl_id = r.crawl_id, replaced_at = r.replaced_at FROM replaced r
    WHERE {_SAME_URL.format("v", "r")} AND v.number = r.last_number AND r.change IS NULL AND r.last_failed AND r.last_differs
), taken_back AS (
    DELETE FROM page_versions v USING replaced r
    WHERE {_SAME_URL.format("v", "r")} AND v.number = r.last_number AND r.change IS NULL AND r.last_failed AND NOT r.last_differs
)
"""  # noqa: S608 — composed of constants only
