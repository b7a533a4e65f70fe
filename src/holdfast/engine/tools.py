"""What every visit of a worker process shares: made once by the worker, passed to all."""

import random
from dataclasses import dataclass

from holdfast.engine.board import Board
from holdfast.engine.committer import Committer
from holdfast.engine.desk import Desk
from holdfast.engine.lease import Leases
from holdfast.engine.links import LinkMemory, Sites
from holdfast.fetch.client import Client
from holdfast.model.url import UrlRules
from holdfast.parse.isolate import PageParser
from holdfast.settings import Settings
from holdfast.telemetry.clock import Clock


@dataclass(frozen=True, slots=True)
class Tools:
    """The worker's tools."""

    settings: Settings
    worker: str
    run_id: int
    agent: str
    """The User-Agent, where a domain has none of its own."""
    rules: UrlRules
    sites: Sites
    memory: LinkMemory
    clock: Clock
    chance: random.Random
    desk: Desk
    leases: Leases
    committer: Committer
    board: Board
    client: Client
    parser: PageParser
