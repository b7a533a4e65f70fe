"""The API under load while a crawl runs and its workers are killed; and how exact its limits are. Prints tables; never a gate.

    python -m benchmarks.api_load [--only load limits] [--minutes 10] [--rate 200] [--kill-every 5] [--seed 1] [--json FILE]

Everything runs on this machine: a simulated web of sites that are asked once a second each, `holdfast serve` with four workers and the
bundled PostgreSQL in a folder of its own, which is removed at the end, and this process, which asks. Requests are due at fixed moments,
and their latency is counted from there, so that a request which had to wait for a connection, or for a server that stalled, shows it.
"""

import argparse
import asyncio
import json
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import uvloop

from benchmarks import api_limits
from benchmarks.api_client import NOBODY, Answer, Api, Tally, quantiles, until
from benchmarks.api_mix import STREAMS, Kind, Mix, Part
from benchmarks.api_server import Served, serving, wait_until
from holdfast.model.auth import Role
from holdfast.testing.simweb.access_log import boot_ns
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web

SITES = 45
JOBS = 3
TOGGLED = 2
"""Sites more, of a job that is paused and resumed all the time."""
WORKERS = 4
LISTENERS = 20
SITE = Site(pages=5000, links=20, body_bytes=3000, latency=0.02, jitter=0.03)
MANY = "10000000"
SETTINGS = {
    "WEB_ANONYMOUS_LIMIT": MANY,
    "WEB_USER_LIMIT": MANY,
    "WEB_ADMIN_LIMIT": MANY,
    "WEB_SEED_LIMIT": MANY,
    "WEB_PROCESSES": "2",
    "FETCH_ALLOW_PRIVATE": "true",
    "DOMAINS_CRAWL_DELAY": "1s",
}
READS_P99 = 250
"""Milliseconds that are bearable."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("load", "limits"), default=("load", "limits"))
    parser.add_argument("--minutes", type=float, default=10, help="how long the load lasts")
    parser.add_argument("--rate", type=float, default=200, help="requests a second")
    parser.add_argument("--kill-every", type=float, default=5, help="seconds between two kills of a worker; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    if "load" in options.only:
        figures["load"] = bench_load(options.minutes * 60, options.rate, options.kill_every, options.seed)
    if "limits" in options.only:
        figures["limits"] = api_limits.bench()
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


@dataclass
class Load:
    """One run, and what is counted meanwhile."""

    served: Served
    api: Api
    mix: Mix
    seconds: float
    rate: float
    kill_every: float
    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    kinds: dict[Kind, Tally] = field(default_factory=lambda: defaultdict(Tally))
    lately: Tally = field(default_factory=Tally)
    problems: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)
    """Seconds that this process itself was behind its schedule."""
    events: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    at_work: int = 0

    async def run(self) -> None:
        """Ask, listen and kill until the time is over."""
        beside = [asyncio.create_task(self._listen(number)) for number in range(LISTENERS)]
        beside += [asyncio.create_task(self._kill()), asyncio.create_task(self._tell())]
        asked: set[asyncio.Task[None]] = set()
        began = time.monotonic() + 0.5
        for number in range(round(self.seconds * self.rate)):
            due = began + number / self.rate
            await until(due)
            self.late.append(time.monotonic() - due)
            task = asyncio.create_task(self._ask(due))
            asked.add(task)
            task.add_done_callback(asked.discard)
        if asked:
            await asyncio.wait(asked)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        self.api.close()

    async def _ask(self, due: float) -> None:
        part, path, body = self.mix.draw()
        headers = {"Idempotency-Key": str(uuid.uuid4())} if part.method == "POST" else {}
        request = self.api.request(part.method, path, body, headers)
        self.at_work += 1
        try:
            answer = await self.api.ask(request)
        except (OSError, EOFError) as problem:  # TimeoutError is an OSError
            answer = None
            self.problems[part.route, NOBODY, type(problem).__name__] += 1
        finally:
            self.at_work -= 1
        self._count(part, answer, time.monotonic() - due)

    def _count(self, part: Part, answer: Answer | None, took: float) -> None:
        status = answer.status if answer is not None else NOBODY
        for tally in (self.tallies[part.route], self.kinds[part.kind], self.lately):
            tally.add(status, took)
        if answer is not None and status >= 400:
            self.problems[part.route, status, answer.sentence] += 1
        elif answer is not None and part.kind is Kind.READ:
            self.mix.read(part.route, answer.header("link"))

    async def _listen(self, number: int) -> None:
        """A listener to live events, who comes back where he was."""
        last = ""
        while True:
            path = STREAMS[number % len(STREAMS)].format(job=self.mix.things["job"][number % JOBS])
            line = await self.api.line()
            try:
                line.writer.write(self.api.request("GET", path, None, {"Last-Event-ID": last} if last else None))
                head = await line.reader.readuntil(b"\r\n\r\n")
                if int(head[9:12]) != 200:
                    self.problems[f"GET {path.partition('?')[0]}", int(head[9:12]), "a listener"] += 1
                    await asyncio.sleep(1)
                    continue
                self.events["connected"] += 1
                async for piece in line.chunks():
                    self.events["events"] += piece.count(b"\nevent: ") + piece.startswith(b"event: ")
                    for row in piece.split(b"\n"):
                        last = row[4:].decode() if row.startswith(b"id: ") else last
            except (OSError, EOFError):
                self.events["broken"] += 1
                await asyncio.sleep(0.5)
            finally:
                line.close()

    async def _kill(self) -> None:
        """One worker after the other, by dice."""
        while self.kill_every:
            await asyncio.sleep(self.kill_every)
            workers = self.served.children("worker")
            if workers:
                self.mix.dice.choice(workers).kill()
                self.kills += 1

    async def _tell(self) -> None:
        """A line now and then: how it goes."""
        pause = max(5.0, self.seconds / 20)
        began = time.monotonic()
        while True:
            await asyncio.sleep(pause)
            lately, self.lately = self.lately, Tally()
            found = lately.figures()
            times = ", ".join(f"{name} {found[name]:.0f}" for name in ("p50", "p99", "max"))
            print(
                f"  {time.monotonic() - began:5.0f} s: {len(lately.times) / pause:5.0f} answers/s, {times} ms, "
                f"{found['5xx']:.0f} 5xx, {self.at_work} under way, {self.kills} kills",
                flush=True,
            )


def bench_load(seconds: float, rate: float, kill_every: float, seed: int) -> dict[str, Any]:
    """The whole part: web, server, jobs, load, figures."""
    print(
        f"\nLoad: {rate:.0f} requests/s for {seconds:.0f} s, {LISTENERS} listeners, {WORKERS} workers on {SITES + TOGGLED} sites "
        f"(a request a second each), a worker killed every {kill_every:.0f} s; {SETTINGS['WEB_PROCESSES']} processes of the API, "
        f"{psutil.cpu_count()} cores"
    )
    with WebProcess(Web(1, SITES + TOGGLED, SITE)) as web, serving("--workers", str(WORKERS), **SETTINGS) as served:
        token = served.token("load", Role.ADMIN)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(begin_jobs(served.port, token, web))
            wait_until(lambda: len(web.stats()["requests"]) >= SITES + TOGGLED, "not all sites were asked")
            began, before = boot_ns() / 1e9, spent(served, web)
            load = runner.run(under_load(served, token, web, seconds, rate, kill_every, seed))
            ended = boot_ns() / 1e9
        lasted = ended - began
        cores = {name: (used - before[name]) / lasted for name, used in spent(served, web).items()}
        stopped = served.stop()
        hits = [hit for hit in web.log() if began <= hit.at < ended and hit.path != "/robots.txt"]
        faults = served.verify()
        complaints = served.complaints()
    figures: dict[str, Any] = {
        "routes": {route: tally.figures() for route, tally in sorted(load.tallies.items())},
        **{str(kind): load.kinds[kind].figures() for kind in Kind},
        "problems": [[*problem, count] for problem, count in sorted(load.problems.items())],
        "pages_per_second": len(hits) / lasted,
        "kills": load.kills,
        "events": dict(load.events),
        "cores": cores,
        "late": quantiles(load.late),
        "verify": faults,
    }
    report(load, figures)
    show_rest(load, figures, stopped, complaints)
    return figures


async def begin_jobs(port: int, token: str, web: WebProcess) -> None:
    """Jobs through the API, and a few tasks and a batch, so that there is something of each."""
    api = Api(port, token)
    spec = {"allow_private": True, "delay": 1, "max_depth": 1000, "max_pages_per_domain": 1_000_000}
    groups = {f"load-{number}": web.urls[number:SITES:JOBS] for number in range(JOBS)}
    for name, urls in {**groups, "toggled": web.urls[SITES:]}.items():
        await api.call("POST", "/api/jobs", {"name": name, "urls": urls, "spec": spec})
    await api.call("POST", "/api/admin/batches", {"name": "load"})
    urls = [page.url for page in web.expected(0)[1:30]]
    await api.call("POST", "/api/admin/tasks/bulk", {"urls": urls, "batch": "load", "is_recurring": False})
    await api.call("POST", "/api/admin/priorities")
    api.close()


async def under_load(
    served: Served, token: str, web: WebProcess, seconds: float, rate: float, kill_every: float, seed: int
) -> Load:
    """Find out what there is to ask for, and ask."""
    api = Api(served.port, token)
    description = (await api.call("GET", "/api/openapi.json")).json()

    async def column(path: str, name: str) -> list[str]:
        return [str(item[name]) for item in (await api.call("GET", path)).json()["items"]]

    things = {
        "job": [f"load-{number}" for number in range(JOBS)],
        "toggled": ["toggled"],
        "user": ["load", "admin"],
        "domain": await column("/api/domains?limit=100&name=s", "domain"),
        "page": web.urls[:SITES],
        "target": [page.url for site in range(5) for page in web.expected(site)[-1000:]],
        "task": await column("/api/tasks", "id"),
        "batch": await column("/api/batches", "name"),
        "product": await column("/api/products", "id"),
        "proxy": await column("/api/proxies", "id"),
        "worker": await column("/api/workers", "name"),
        "run": await column("/api/runs", "id"),
        "webhook": await column("/api/webhooks", "id"),
        "operation": await column("/api/operations", "id"),
    }
    mix = Mix.of(description, things, seed)
    print(f"  {len(mix.parts)} routes in the mix; read from and not in it: {', '.join(mix.left_out(description))}")
    load = Load(served, api, mix, seconds, rate, kill_every)
    await load.run()
    return load


def spent(served: Served, web: WebProcess) -> dict[str, float]:
    """Seconds of CPU that each part has used, with its processes that have died; and the whole machine."""
    front = sum(cpu(process) for process in served.children("front"))
    machine = psutil.cpu_times()
    return {
        "the API": front,
        "workers": cpu(psutil.Process(served.pid)) + sum(cpu(process) for process in served.children("worker")),
        "PostgreSQL": tree(served.postmaster),
        "the web": tree(web.pid),
        "this load": cpu(psutil.Process()),
        "all programs of this machine": sum(machine) - machine.idle - getattr(machine, "iowait", 0.0),
    }


def tree(pid: int) -> float:
    """Seconds of CPU of a process and all below it."""
    process = psutil.Process(pid)
    return cpu(process) + sum(cpu(child) for child in process.children(recursive=True))


def cpu(process: psutil.Process) -> float:
    """Seconds of CPU of a process and of its children that have died."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


def report(load: Load, figures: dict[str, Any]) -> None:
    """The table by route."""
    columns = ("requests", "2xx", "4xx", "5xx", "none", "p50", "p95", "p99", "max")
    print(f"\n{'times in ms':<46}" + "".join(f"{name:>9}" for name in columns))
    rows = {**figures["routes"], **{f"all {kind}": figures[kind] for kind in Kind if figures[kind]["requests"]}}
    for name, row in rows.items():
        numbers = (f"{row[what]:>9.0f}" if what in columns[:5] else f"{row[what]:>9.1f}" for what in columns)
        print(f"{name:<46}" + "".join(numbers))
    for kind in Kind:
        if load.kinds[kind].times:
            print(
                f"p99 of all {kind}: {figures[kind]['p99']:.0f} ms"
                + (f" (wanted: {READS_P99})" if kind is Kind.READ else "")
            )


def show_problems(what: str, problems: list[list[Any]]) -> None:
    """Every one of them, by what it said."""
    print(f"\n{what}: {sum(count for *_, count in problems) or 'none'}")
    alike: dict[tuple[int, str], list[str]] = defaultdict(list)
    for route, status, sentence, count in problems:
        alike[status, sentence].append(f"{route} ({count})")
    for (status, sentence), routes in alike.items():
        print(f"  {status or 'nothing'}: {sentence}\n      {', '.join(routes)}")


def show_rest(load: Load, figures: dict[str, Any], stopped: float, complaints: Counter[str]) -> None:
    """What else was seen."""
    show_problems("5xx and requests without an answer", [one for one in figures["problems"] if not 400 <= one[1] < 500])
    show_problems("4xx", [one for one in figures["problems"] if 400 <= one[1] < 500])
    late = figures["late"]
    print(f"\nThe crawl: {figures['pages_per_second']:.1f} pages/s; {load.kills} workers killed")
    print(f"Live: {LISTENERS} listeners, {dict(load.events)}")
    print(f"Cores: {', '.join(f'{name} {used:.2f}' for name, used in figures['cores'].items())}")
    print(
        f"Lines: {load.api.opened} opened, {load.api.repeated} requests repeated on a new one; this process was late by {late} ms"
    )
    print(
        f"Told to stop, the server ended after {stopped:.1f} s; complaints in its log: {complaints.total() or 'none'}"
    )
    for line, count in complaints.most_common(20):
        print(f"  {count:>5} times {line[:200]}")
    print(f"holdfast verify: {'; '.join(figures['verify']) or 'clean'}")


if __name__ == "__main__":
    main()
