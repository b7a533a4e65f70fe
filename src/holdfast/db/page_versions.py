"""Versions of pages: which crawl a new page is counted for, and how many versions are kept.

The rule: a version is stored in the transaction that replaces it, by the trigger of `crawled_pages`, and only if the content differs: a
first crawl and an unchanged page store none. The last answer is in `crawled_pages`. An error is no content: the page that it replaced is
the newest version until the URL answers with a page again, which takes that version back if it has the same content.
"""

from typing import Final

from holdfast.model.outcome import PAGES, Outcome

VERSIONS: Final = 20
"""Versions of a page that are kept beside the last answer, unless the settings say otherwise."""
SETTING: Final = "holdfast.page_versions"
"""The setting by which a transaction tells the trigger how many."""

PAGE_OUTCOMES: Final = "({})".format(", ".join(f"'{outcome}'" for outcome in sorted(PAGES)))
"""Outcomes that are a page, as a list in SQL."""

CRAWLS: Final = """
    SELECT j.job_id, c.id AS crawl_id, EXISTS (SELECT FROM crawls b WHERE b.job_id = j.job_id AND b.id < c.id) AS again
    FROM (SELECT DISTINCT job_id FROM changed WHERE has_row) j
    CROSS JOIN LATERAL (SELECT max(id) AS id FROM crawls WHERE job_id = j.job_id) c
"""
"""The last crawl of each job of a batch, and whether it is a later one than the first."""

NEW_IN_CRAWL: Final = f"CASE WHEN outcome IN {PAGE_OUTCOMES} AND again THEN crawl_id END"
"""The value of a URL that had no answer before."""

# `p` is the answer that is replaced, `excluded` the new one. The trigger knows whether there was a page before an error.
STILL_NEW_IN_CRAWL: Final = f"""
CASE WHEN excluded.outcome = '{Outcome.NOT_FOUND}' THEN NULL
     WHEN excluded.outcome IN {PAGE_OUTCOMES} AND p.outcome NOT IN {PAGE_OUTCOMES} THEN excluded.new_in_crawl
     ELSE p.new_in_crawl END
"""
"""The value of a URL that had an answer before."""
