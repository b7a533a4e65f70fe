"""Proxies for crawls of tests: processes of our own scriptable one, known to a store and assigned to domains."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.control.secret_box import SecretBox
from holdfast.model.proxy import ProxyMode, parse_proxy
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.proxies.records import ProxyOptions
from holdfast.testing.simweb.proxy_process import ProxyProcess
from tests.support.crawls import Crawls

ACTOR: Final = "ann"


@contextmanager
def running(folder: Path, count: int, **options: Any) -> Iterator[list[ProxyProcess]]:
    """So many proxies, all alike."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(ProxyProcess(folder, name=f"proxy{number}", **options))
            for number in range(1, count + 1)
        ]


@dataclass
class Farm:
    """The proxies of one test: what they are asked for from now on, and what the store knows of them."""

    crawls: Crawls
    processes: Sequence[ProxyProcess]
    ids: list[int] = field(default_factory=list)
    _before: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.heal()
        self._before = [len(process.log()) for process in self.processes]

    def harm(self, process: ProxyProcess, how: str) -> None:
        """Kill it, freeze it, or have it behave so; a number is a status that it answers."""
        if how == "kill":
            process.kill()
        elif how == "freeze":
            process.freeze()
        elif how.isdigit():
            process.behave("status", status=int(how))
        else:
            process.behave(how)

    def heal(self) -> None:
        """All of them work."""
        for process in self.processes:
            if process.pid:
                process.thaw()
            else:
                process.start()
            process.behave("work")

    def register(self, *, limit: int | None = None, countries: Sequence[str] = ()) -> "Farm":
        """Make them known to the store."""
        safe = SecretBox.of(self.crawls.settings)
        for number, process in enumerate(self.processes):
            written = parse_proxy(process.url)
            token = None if written.password is None else safe.seal(written.password)
            country = countries[number] if countries else None
            options = ProxyOptions(max_requests_per_hour=limit, allow_private=True, country_code=country)
            made = proxies.add(self.crawls.connection, proxies.SealedProxy(written.server, token, options), actor=ACTOR)
            assert made is not None
            self.ids.append(made)
        return self

    def assign(self, domain: str, *, priority: int | None = None, only: Sequence[int] | None = None) -> None:
        """To a domain that is known; `only` these, by their places."""
        chosen = self.ids if only is None else [self.ids[place] for place in only]
        proxy_pools.assign(
            self.crawls.connection, domain, chosen, default=ProxyMode.DIRECT, priority=priority, actor=ACTOR
        )

    def asked(self, place: int) -> list[dict[str, Any]]:
        """What came to one of them in this test."""
        return self.processes[place].log()[self._before[place] :]

    def counts(self, path: str = "") -> list[int]:
        """How many requests came to each, robots.txt apart."""
        return [
            sum("robots.txt" not in str(hit["target"]) and path in str(hit["target"]) for hit in self.asked(place))
            for place in range(len(self.processes))
        ]

    def targets(self) -> Counter[str]:
        """How often each URL was asked for through any of them."""
        return Counter(str(hit["target"]) for place in range(len(self.processes)) for hit in self.asked(place))

    def health(self) -> list[tuple[bool, int, str | None]]:
        """Of each: is it active, failures in a row, who switched it off."""
        return self.crawls.rows("SELECT is_active, failure_count, disabled_by FROM proxies ORDER BY id")

    def figures(self) -> list[dict[str, Any]]:
        """Of each mapping, what went through it."""
        return [row for (row,) in self.crawls.rows("SELECT to_jsonb(m) FROM domain_proxies m ORDER BY proxy_id")]
