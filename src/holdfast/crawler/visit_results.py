"""The results of a visit, on their way into the database.

The rule: every row of the visit enters the batch here, and is counted until it is committed. What is special about the rows of tasks is
decided here, too.
"""

from collections.abc import Callable, Sequence

from holdfast.archive.image_store import ImageFile
from holdfast.archive.warc import Exchange
from holdfast.crawler.batch_writer import BatchWriter
from holdfast.crawler.link_filter import LinkFilter
from holdfast.crawler.request_gate import NEVER, RequestGate
from holdfast.crawler.url_buffer import UrlBuffer
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem, PolitenessClocks, UrlOutcome, UrlRef
from holdfast.model.domain import Claim
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.page_links import LinkFacts
from holdfast.model.proxy import ProxyUse
from holdfast.model.visit_report import FrontierGrowth
from holdfast.politeness.error_streak import VisitAnswers
from holdfast.telemetry.clock import Clock


class VisitResults:
    """The results of one visit: the holder of its claim, as the batch writer sees it."""

    def __init__(
        self,
        batch_writer: BatchWriter,
        clock: Clock,
        claim: Claim,
        job_id: int,
        *,
        for_tasks: bool,
        answers: VisitAnswers,
        gate: RequestGate,
        buffer: UrlBuffer,
        links: LinkFilter,
        on_lost: Callable[[], None],
    ) -> None:
        """`on_lost` is called when the claim belongs to another worker."""
        self._batch_writer = batch_writer
        self._clock = clock
        self._job_id = job_id
        self._answers = answers
        self._gate = gate
        self._buffer = buffer
        self._links = links
        self._on_lost = on_lost
        self._added_elsewhere = 0
        """Number of URLs that pages of this visit added to other domains, for the flood guard."""
        self.domain_id = claim.domain_id
        self.epoch = claim.epoch
        self.for_tasks = for_tasks
        self.keeps_status = answers.keeps_status
        self.uncommitted = 0
        """Rows that are not committed."""
        self.clocks_pending = False
        """Whether `save_clocks` is not committed."""
        self.lost = False
        """Whether another worker holds the claim: nothing more is committed."""

    # From the visit ---------------------------------------------------------------------------------------------------

    def add(
        self,
        item: FrontierItem,
        row: UrlOutcome,
        found: Sequence[DiscoveredUrl] = (),
        exchange: Exchange | None = None,
        image: ImageFile | None = None,
    ) -> None:
        """Add the outcome of a URL to the batch, with the URLs that it leads to and the bytes for the archive. After: if it is requested
        again by this visit, it is the next one."""
        if row.tasks and row.outcome is Outcome.REDIRECT and found[0].state is UrlState.WAITING:
            # The schedule sends a task to the target of its redirect.
            row.moved_to, found = UrlRef(found[0].url, found[0].url_key), ()
        self._batch_writer.add(self, row, found, exchange, image)
        self.uncommitted += 1
        if row.again:
            self._buffer.put_back(item._replace(attempts=row.attempts))

    async def add_piece(self, item: FrontierItem, row: UrlOutcome, found: Sequence[DiscoveredUrl]) -> None:
        """Add a part of what a URL leads to, once the batch has room for it. After: the URL still waits in the frontier, and its outcome
        must follow."""
        await self._batch_writer.wait_for_room()
        if not self.lost:
            self.add(item, row, found)

    def deny(
        self,
        item: FrontierItem,
        outcome: Outcome,
        state: UrlState,
        reason: str,
        retry_in: float | None = None,
        found: Sequence[DiscoveredUrl] = (),
        link_facts: LinkFacts | None = None,
    ) -> None:
        """Add a URL that is not requested, with the reason, the URLs that replace it, and what that means for links to it."""
        row = UrlOutcome(
            self._job_id,
            item.url_key,
            item.url,
            item.depth,
            outcome,
            state,
            reason,
            item.attempts,
            retry_in,
            fetched=False,
            tasks=item.tasks,
            link_facts=link_facts,
        )
        self.add(item, row, found)

    def use_http(self, item: FrontierItem, detail: str) -> None:
        """Replace a seed by its http URL, since its server does not speak TLS. After: both are in the batch."""
        state = TREATMENT[Outcome.NO_HTTPS].state
        row = UrlOutcome(self._job_id, item.url_key, item.url, item.depth, Outcome.NO_HTTPS, state, fetched=False)
        row.reason = f"{Outcome.NO_HTTPS}: {detail}"[:500]
        self.add(item, row, [self._links.over_http(item.url, item.url_key)])

    def add_proxy_use(self, use: ProxyUse) -> None:
        """Add the use of a proxy by a request that was not for a page."""
        self._batch_writer.add_proxy_use(self, use)

    def save_clocks(self) -> None:
        """Commit the clocks with the open batch, even if it has no outcome of the visit."""
        self.clocks_pending = True
        self._batch_writer.save_clocks(self)

    async def wait_until_committed(self) -> None:
        """Wait until all rows and clocks are committed, or the claim is lost."""
        while (self.uncommitted or self.clocks_pending) and not self.lost:
            self._batch_writer.commit_soon()
            await self._gate.wait(NEVER)

    # From the batch writer --------------------------------------------------------------------------------------------

    def clocks(self) -> PolitenessClocks:
        """Return request rate and circuit breaker at this moment, for the database."""
        return self._gate.clocks()

    @property
    def streak(self) -> int:
        """Consecutive refusals and failures to reach the server."""
        return self._answers.streak.length

    @property
    def consecutive_errors(self) -> int:
        """Consecutive errors of every kind."""
        return self._answers.streak.errors

    def on_committed(self, outcomes: Sequence[UrlOutcome], growth: FrontierGrowth, *, clocks_saved: bool) -> None:
        """Called when these outcomes are committed. After: the URLs that they led to can be read from the frontier."""
        self.uncommitted -= len(outcomes)
        self.clocks_pending = self.clocks_pending and not clocks_saved
        self._buffer.remove_committed(
            outcome.url_key for outcome in outcomes if not outcome.again and not outcome.partial
        )
        self._links.on_committed(growth)
        if growth.added:
            self._added_elsewhere += growth.elsewhere
            self._gate.rate.discovered(growth.added, growth.waiting + self._added_elsewhere, self._clock.now())
        self._gate.notify()

    def lose_claim(self) -> None:
        """Called when another worker holds the claim. After: nothing more of the visit is committed."""
        if not self.lost:
            self.lost = True
            self._batch_writer.discard(self)
            self._on_lost()
