"""A batch that the database refuses, taken apart until the page that it cannot hold stands alone.

The rule: what was learnt from a page stays together with that page, so each half is a batch that may be committed by itself.
"""

from dataclasses import replace

from holdfast.errors import StoreError
from holdfast.model.batch import Batch, VisitPart
from holdfast.model.outcome import Outcome, UrlState


def split(batch: Batch) -> list[Batch] | None:
    """Two smaller batches; None if there is only one outcome left."""
    parts = batch.parts
    if len(parts) > 1:
        middle = len(parts) // 2
        return [replace(batch, parts=parts[:middle]), replace(batch, parts=parts[middle:])]
    if not parts or len(parts[0].outcomes) <= 1:
        return None
    (part,) = parts
    middle = len(part.outcomes) // 2
    ends = ((0, middle), (middle, len(part.outcomes)))
    return [replace(batch, parts=[_part_of(part, start, end)]) for start, end in ends]


def _part_of(part: VisitPart, start: int, end: int) -> VisitPart:
    outcomes = part.outcomes[start:end]
    keys = {outcome.url_key for outcome in outcomes}
    # An address that was found on no page of this part (there is none such) goes with the first half.
    others = {outcome.url_key for outcome in part.outcomes} - keys
    found = [url for url in part.found if url.parent_key in keys or (start == 0 and url.parent_key not in others)]
    return replace(part, outcomes=outcomes, found=found, other_uses=part.other_uses if start == 0 else [])


def give_up_on(batch: Batch, why: str) -> None:
    """Change the one outcome to what can be stored: that it could not be. Raises StoreError if it was that already."""
    outcomes = batch.parts[0].outcomes if batch.parts else []
    if not outcomes or (
        outcomes[0].outcome is Outcome.BAD_RESPONSE and not batch.parts[0].found and outcomes[0].page is None
    ):
        raise StoreError(why)
    (outcome,) = outcomes
    outcome.outcome, outcome.state, outcome.reason = (
        Outcome.BAD_RESPONSE,
        UrlState.FAILED,
        f"cannot be stored: {why[:300]}",
    )
    outcome.page, outcome.retry_in, outcome.proxy = None, None, None
    batch.parts[0].found.clear()
    batch.parts[0].other_uses.clear()
