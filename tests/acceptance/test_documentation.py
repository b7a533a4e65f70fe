"""Whole documentation trees: one command takes every page that `wget -r -l inf` finds, without a stop, and each difference is explained."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.acceptance import nginx, peers
from tests.acceptance.holdfast import Holdfast
from tests.acceptance.nginx import Server
from tests.acceptance.requirements import TREES
from tests.support.dynamic_site import Request

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]

PAGES = {"python": 527, "postgresql": 1170, "handbook": 3329}
LONGEST_GAP = 3.0
"""Seconds without a request while URLs wait."""
_SKIPPED = (".py", ".pdf", ".js", ".sh", ".zip", ".gz", ".epub")
_REQUISITE = re.compile(r"\.(css|js|png|jpe?g|gif|svg|ico|woff2?|ttf|eot|xml|webp)(\?|$)")


@pytest.mark.parametrize("tree", TREES)
def test_one_command_takes_the_whole_tree(
    tree: str, holdfast: Holdfast, tmp_path: Path, report: Callable[[str], None], results: Path
) -> None:
    root, _ = TREES[tree]
    with nginx.served(tmp_path / "nginx", {"_": nginx.static(root)}) as server:
        crawled = holdfast.crawl(server.url())
        mine = server.requests()
        server.forget()
        wget_took = peers.wget(server.url(), tmp_path / "wget")
        wget = server.requests()
        server.forget()
        scrapy_took = peers.scrapy(server.url(), tmp_path / "scrapy")
        scrapy = server.requests()
    reasons = reasons_of(holdfast, server)
    ours, theirs, spider = answered(mine), answered(wget), answered(scrapy)
    gap = nginx.longest_gap(mine)
    found = [
        f"{tree}: {len(html(ours))} pages by Holdfast, {len(html(theirs))} by wget, {len(html(spider))} by Scrapy",
        *differences("wget", ours, theirs, reasons),
        *differences("Scrapy", ours, spider, reasons),
        f"longest time without a request: {gap:.1f} s",
        f"the last lines of `holdfast crawl`:\n{crawled.said.strip()}",
    ]
    times = {
        "Holdfast": (crawled.took, len(mine)),
        "of it, first to last request": (mine[-1].at - mine[0].at, len(mine)),
        "wget, 1 connection": (wget_took, len(wget)),
        "Scrapy, 32 connections": (scrapy_took, len(scrapy)),
    }
    report("\n".join([*found, *one_table(tree, times, results)]))
    assert crawled.code == 0
    assert not [line for line in found if "NOT EXPLAINED" in line]
    assert html(theirs) <= ours
    assert len(html(ours)) == PAGES[tree]
    assert gap < LONGEST_GAP
    assert max(Counter(request.path for request in mine).values()) == 1
    holdfast.verify()


def answered(requests: Iterable[Request]) -> set[str]:
    """Paths that were answered with content."""
    return {unquote(request.path) for request in requests if request.status == 200}


def html(paths: Iterable[str]) -> set[str]:
    """Those that are pages."""
    return {path for path in paths if path.endswith((".html", ".htm", "/"))}


def reasons_of(holdfast: Holdfast, server: Server) -> dict[str, str]:
    """Every path that Holdfast met and did not take as a page, with its reason."""
    start = server.url().removesuffix("/")
    rows = [row for row in holdfast.exported("urls") if row["state"] != "done"]
    return {unquote(row["url"].removeprefix(start)): f"{row['state']}: {row['reason']}" for row in rows}


def one_table(tree: str, times: dict[str, tuple[float, int]], results: Path) -> list[str]:
    """The times of all trees that have been crawled so far; `times.txt` has it, too.

    Holdfast's own time includes the start of its database, which is created in this run.
    """
    (results / f"{tree}.json").write_text(json.dumps(times))
    lines = [f"{'tree':12}{'':30}{'seconds':>9}{'requests':>10}{'requests/s':>12}"]
    for name in TREES:
        if (file := results / f"{name}.json").exists():
            lines += [
                f"{name:12}{who:30}{seconds:>9.1f}{requests:>10}{requests / seconds:>12.0f}"
                for who, (seconds, requests) in json.loads(file.read_text()).items()
            ]
    (results / "times.txt").write_text("\n".join([*lines, ""]))
    return lines


def differences(peer: str, ours: set[str], theirs: set[str], reasons: dict[str, str]) -> list[str]:
    """A line for each kind of difference; one that has no reason is marked."""
    only_theirs = Counter(why_not_ours(path, reasons) for path in theirs - ours)
    only_ours = Counter(why_not_theirs(peer, path) for path in ours - theirs)
    lines = [f"  only {peer}: {number:>5}  {why}" for why, number in sorted(only_theirs.items())]
    lines += [f"  not {peer}:  {number:>5}  {why}" for why, number in sorted(only_ours.items())]
    return lines or [f"  {peer}: no difference"]


def why_not_ours(path: str, reasons: dict[str, str]) -> str:
    """The reason why Holdfast has not taken a path."""
    if path in reasons and not reasons[path].startswith("waiting"):
        return f"met and not a page ({reasons[path]}): {Path(path).suffix or path}"
    if hit := _REQUISITE.search(path):
        return f"a file that a page shows, not a page: .{hit[1]}"
    return f"NOT EXPLAINED {path}"


def why_not_theirs(peer: str, path: str) -> str:
    """The reason why a peer has not taken a path that Holdfast took."""
    if path == "/robots.txt":
        return "asked by Holdfast before the first page: /robots.txt"
    if peer == "Scrapy" and path.endswith(_SKIPPED):
        return f"a link that Scrapy's LinkExtractor skips by its suffix: {Path(path).suffix}"
    return f"NOT EXPLAINED {path}"
