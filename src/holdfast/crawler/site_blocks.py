"""Decides which blocks of text are left out of documents, because they stand on many pages of their site.

The rule: it runs beside the crawl, from what the documents of a domain have in common at the time. The blocks of a domain are counted
again when its documents have grown by a quarter; new documents in between are judged by the counts of before.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.db import documents
from holdfast.db.connection import Connection
from holdfast.db.documents import DocumentBlocks
from holdfast.parse.text.repeated import MAX_DOMAIN_BLOCKS, MIN_PAGES, repeated_blocks

GROWTH: Final = 1.25
"""By how much the documents of a domain must have grown, until its blocks are counted again."""
DOMAINS_AT_ONCE: Final = 20


def decide_some(connection: Connection, after: int = 0) -> int:
    """Decide for some domains whose documents are undecided, in the order of their ids from `after` on, then from the first one again; so
    domains that always have new documents hold up no other. Return the id of the last one; 0: there was none."""
    found = documents.undecided_domains(connection, after=after, limit=DOMAINS_AT_ONCE)
    if not found and after:
        found = documents.undecided_domains(connection, limit=DOMAINS_AT_ONCE)
    for domain_id in found:
        decide(connection, domain_id)
    return found[-1] if found else 0


def decide(connection: Connection, domain_id: int) -> None:
    """Decide for the documents of a domain what is left out of them. After: none is undecided, but those that were written meanwhile."""
    counted = documents.counted_documents(connection, domain_id)
    now = documents.count_documents(connection, domain_id)
    recount = not counted <= now <= counted * GROWTH or counted == 0
    if recount:
        fresh = documents.count_blocks(connection, domain_id, fewest=MIN_PAGES, limit=MAX_DOMAIN_BLOCKS)
        if fresh is None:  # another process is about to decide for this domain
            return
        counted = fresh
    counts = documents.block_counts(connection, domain_id)
    for chunk in documents.blocks_of(connection, domain_id, all_documents=recount):
        decided = [(one, _repeated(one, counts, counted)) for one in chunk]
        changed = [(one, removed) for one, removed in decided if one.counted_pages is None or one.removed != removed]
        if changed:
            documents.decide(connection, domain_id, counted, changed)


def _repeated(one: DocumentBlocks, counts: Mapping[int, int], pages: int) -> list[int]:
    return repeated_blocks(one.block_hashes, one.block_words, counts, pages, protected=one.heading_blocks)
