"""Broken links of a real documentation tree with fifty planted faults: all are found, and none is made up; `wget --spider` beside it."""

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance import nginx
from tests.acceptance.holdfast import Holdfast
from tests.acceptance.requirements import TREES, program

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

TREE: Final = TREES["handbook"][0] / "en-US"
ELSE_NOWHERE: Final = r"^https?://(?!127\.0\.0\.1|localhost:|no-such-host\.invalid|ex%20ample)"
"""Other sites that the tree links to: nothing of this leaves the machine."""
_WGET_BROKEN: Final = re.compile(r"^(http\S+)$", re.MULTILINE)


@dataclass
class Plants:
    """What is planted into pages: links, and which of their targets are broken."""

    links: list[tuple[str, str]] = field(default_factory=list)
    """The markup, and the URL of its target if it is broken, else empty."""

    def broken(self, markup: str, url: str) -> None:
        self.links.append((markup, url))

    def fine(self, *markup: str) -> None:
        self.links += [(one, "") for one in markup]

    @property
    def faults(self) -> set[str]:
        return {url for _, url in self.links if url}


def plant(here: str, other: str, refused: str, tls: str) -> Plants:
    """Fifty faults of all kinds, and decoys. `here`, `other`: addresses of the two hosts; `refused`: one where nothing listens; `tls`: one
    with a certificate that nobody knows."""
    plants = Plants()
    for number in range(10):
        plants.broken(f'<a href="gone-{number}.html">old {number}</a>', f"{here}gone-{number}.html")
    for number in range(4):
        plants.broken(
            f'<a href="/deep/{number}/../{number}.html?page={number}#part">up</a>',
            f"{here}deep/{number}.html?page={number}",
        )
    for number in range(3):
        plants.broken(f'<p><img src="images/lost-{number}.png" alt="lost"></p>', f"{here}images/lost-{number}.png")
    for number in range(3):
        plants.broken(f'<a href="/moved/gone-{number}">moved</a>', f"{here}moved/gone-{number}")
    plants.broken('<a href="/chain/1">chain</a>', f"{here}chain/1")
    plants.broken('<a href="/loop/self">loop of one</a>', f"{here}loop/self")
    plants.broken('<a href="/loop/a">loop of two</a>', f"{here}loop/a")
    plants.broken('<a href="/loop/x">loop of three</a>', f"{here}loop/x")
    plants.broken('<a href="/endless/1">endless</a>', f"{here}endless/1")
    for status in (400, 403, 405, 410, 451, 500, 501, 502, 503, 504):
        plants.broken(f'<a href="/status/{status}">{status}</a>', f"{here}status/{status}")
    plants.broken('<a href="/with space.html">a space</a>', f"{here}with%20space.html")
    plants.broken('<a href="/caf&eacute;.html">letters</a>', f"{here}caf%C3%A9.html")
    plants.broken('<a href="  /%7Etilde.html\n">white space around it</a>', f"{here}~tilde.html")
    plants.broken('<a href="/a&amp;b=&quot;c&quot;.html">quotes</a>', f"{here}a&b=%22c%22.html")
    plants.broken('<a href="//&#91;bad/">no URL</a>', "//[bad/")
    plants.broken('<a href="http://ex ample/">no host</a>', "http://ex ample/")
    plants.broken('<iframe src="frame-gone.html"></iframe>', f"{here}frame-gone.html")
    plants.broken('<iframe src="/frame/gone"></iframe>', f"{here}frame/gone")
    plants.broken('<map name="m"><area href="area-gone.html" alt="An area"></map>', f"{here}area-gone.html")
    plants.broken(f'<a rel="external" href="{other}gone">elsewhere</a>', f"{other}gone")
    plants.broken(f'<a href="{other}status/500">elsewhere, 500</a>', f"{other}status/500")
    plants.broken(f'<a rel="nofollow" href="{other}moved/gone">elsewhere, moved</a>', f"{other}moved/gone")
    plants.broken(f'<a href="{refused}">nothing listens</a>', refused)
    plants.broken('<a href="http://no-such-host.invalid/">no host</a>', "http://no-such-host.invalid/")
    plants.broken(f'<a href="{tls}">bad certificate</a>', tls)
    plants.fine(
        '<a href="/private/secret.html">denied by robots.txt</a>',
        '<a href="/moved/fine">a redirect that is fine</a>',
        '<a href="/slow">slow</a>',
        '<a href="#">nowhere</a> <a href="#top">top</a> <a href="index.html#">its beginning</a>',
        '<a href="mailto:somebody@example.org">mail</a> <a href="tel:112">call</a> <a href="javascript:void(0)">script</a>',
        '<a href="data:text/html,gone">data</a> <a href="">empty</a> <a>none</a>',
        '<a href="/archive.tar.gz">a file</a> <a href="/empty.html">empty page</a>',
        f'<a href="{other}fine">elsewhere</a> <a href="{other}moved/fine">elsewhere, moved</a>',
        f'<a href="{other}status/403">not for crawlers</a> <a href="{other}status/429">too often</a>',
        '<a href="/status/401">needs a login</a> <a rel="nofollow" href="/not-followed.html">nofollow</a>',
        '<script>document.write("<a href=/script-gone.html>no link</a>")</script> <!-- <a href="/comment-gone.html">no link</a> -->',
    )
    return plants


LOST: Final = (
    '<a href="index.html#lost-1">no such place</a> <a href="index.html#">its beginning</a>',
    '<a href="#lost-2">no such place here</a> <a href="#l%C3%A4nge">encoded</a> <i id="länge"></i>',
    '<a href="sect.apt-get.html#lost-3">no such place</a> <a href="#/route">a route</a> <a href="#:~:text=apt">a text</a>',
)
"""Links to places that are missing, and decoys."""
RULES: Final = """
root {root}; index index.html;
location /robots.txt {{ return 200 "User-agent: *\\nDisallow: /private/\\n"; }}
location /moved/fine {{ return 301 /index.html; }}
location /moved/ {{ return 302 /nowhere$uri; }}
location = /chain/1 {{ return 301 /chain/2; }} location = /chain/2 {{ return 302 /chain/3; }}
location = /chain/3 {{ return 307 /chain/end; }}
location = /loop/self {{ return 302 /loop/self; }}
location = /loop/a {{ return 302 /loop/b; }} location = /loop/b {{ return 302 /loop/a; }}
location = /loop/x {{ return 302 /loop/y; }} location = /loop/y {{ return 302 /loop/z; }} location = /loop/z {{ return 302 /loop/x; }}
location ~ ^/endless/(?<n>.*)$ {{ return 302 /endless/${{n}}1; }}
location ~ ^/status/(?<code>[0-9]+)$ {{ {statuses} }}
location = /slow {{ limit_rate 2k; try_files /slow.html =404; }}
"""
ELSEWHERE: Final = """
location = /fine {{ return 200 ok; }} location = /moved/fine {{ return 302 /fine; }} location = /moved/gone {{ return 301 /gone; }}
location ~ ^/status/(?<code>[0-9]+)$ {{ {statuses} }} location / {{ return 404; }}
"""
STATUSES: Final = " ".join(
    f"if ($code = {code}) {{ return {code}; }}" for code in (400, 401, 403, 405, 410, 429, 451, 500, 501, 502, 503, 504)
)


@contextmanager
def bad_certificate(folder: Path) -> Iterator[str]:
    """A server whose certificate is its own."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = [
        "openssl",
        "s_server",
        "-quiet",
        "-www",
        "-key",
        "key.pem",
        "-cert",
        "cert.pem",
        "-accept",
        f"127.0.0.1:{port}",
    ]
    process = subprocess.Popen(
        server, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"https://localhost:{port}/"
    finally:
        process.kill()
        process.communicate()


def tree_with(root: Path, plants: Plants) -> dict[str, str]:
    """Copy the tree and plant the links, one to a page; returns by broken target the page that holds it."""
    shutil.copytree(TREE, root)
    pages = sorted(
        page for page in root.glob("*.html") if page.name != "index.html" and "</body>" in page.read_text("utf-8")
    )
    (root / "slow.html").write_text("<!doctype html><title>Slow</title>" + "<p>slow</p>" * 500)
    (root / "empty.html").write_text("")
    (root / "archive.tar.gz").write_bytes(b"\x1f\x8b" + bytes(100))
    (root / "private").mkdir()
    holders = {}
    for number, (markup, url) in enumerate(plants.links):
        page = pages[(number * 7) % len(pages)]
        page.write_text(page.read_text("utf-8").replace("</body>", f"{markup}</body>", 1), "utf-8")
        if url:
            holders[url] = page.name
    for number in range(3):
        pages[number].write_text(
            pages[number].read_text("utf-8").replace("</body>", f"{LOST[number]}</body>", 1), "utf-8"
        )
    return holders


def spider(start: str, folder: Path) -> tuple[set[str], float]:
    """The links that `wget --spider` calls broken, and the seconds that it took."""
    folder.mkdir()
    binary = program("wget")
    assert binary
    began = time.monotonic()
    options = [
        "--spider",
        "-r",
        "-l",
        "inf",
        "-nv",
        "--tries=1",
        "--timeout=5",
        "-o",
        "log",
        "--page-requisites",
        "--span-hosts",
    ]
    options += ["--domains=127.0.0.1,localhost", "--max-redirect=20"]
    subprocess.run([binary, *options, start], cwd=folder, check=False, capture_output=True, timeout=300)
    said = (folder / "log").read_text("utf-8", "replace")
    _, _, listed = said.rpartition("broken link")
    return set(_WGET_BROKEN.findall(listed)), time.monotonic() - began


def otherwise(url: str, here: str) -> str:
    """The URL of a link that wget names otherwise: by where its redirects end, or without decoding it."""
    names = {"chain/end": "chain/1", "%7Etilde.html": "~tilde.html", "caf&eacute;.html": "caf%C3%A9.html"}
    names |= {f"nowhere/moved/gone-{number}": f"moved/gone-{number}" for number in range(3)}
    path = url.removeprefix(here)
    return f"{here}{names.get(path, path)}" if url.startswith(here) else url


def test_fifty_planted_faults_are_found_and_none_is_made_up(
    holdfast: Holdfast, tmp_path: Path, report: Callable[[str], None]
) -> None:
    root = tmp_path / "site"
    rules = {"_": RULES.format(root=root, statuses=STATUSES), "localhost": ELSEWHERE.format(statuses=STATUSES)}
    with nginx.served(tmp_path / "nginx", rules) as server, bad_certificate(tmp_path) as tls, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, and nobody listens
        here, other = server.url(), server.url("localhost")
        plants = plant(here, other, f"http://localhost:{silent.getsockname()[1]}/", tls)
        holders = tree_with(root, plants)
        assert len(plants.faults) == 50
        settings = {
            "fetch_connect_timeout": "2s",
            "fetch_timeout": "6s",
            "politeness_retries": "0",
            "domains_max_errors": "1000",
        }
        crawled = holdfast.crawl(
            here,
            "--check-external",
            "--images",
            "--job",
            "site",
            "--sitemaps",
            "no",
            "--exclude",
            ELSE_NOWHERE,
            **settings,
        )
        found = {
            one["url"]: one for one in json.loads(holdfast("links", "broken", "--limit", "1000", "--json").out)["rows"]
        }
        places = holdfast("links", "fragments", "--json", "--limit", "1000")
        summary = holdfast("links", "summary")
        html = holdfast("links", "broken", "--html", str(tmp_path / "broken.html"))
        failed = holdfast("links", "broken", "--fail")
        edges = holdfast("export", "links", str(tmp_path / "links.parquet"))
        holdfast.verify()
        mine = len(server.requests())
        server.forget()
        wget, wget_took = spider(here, tmp_path / "wget")
    lost = {one["fragment"] for one in json.loads(places.out)["rows"]}
    missing, invented = plants.faults - found.keys(), found.keys() - plants.faults
    wrong = {
        url
        for url in plants.faults & found.keys()
        if holders[url] not in {one["page_url"].rpartition("/")[2] for one in found[url]["links"]}
    }
    wget = {otherwise(url, here) for url in wget}
    theirs = wget & plants.faults
    lines = [
        f"{len(plants.faults)} planted faults: {len(plants.faults & found.keys())} found, {len(missing)} missing, {len(invented)} made up",
        f"  missing: {sorted(missing)}" if missing else "",
        *(f"  made up: {url} {found[url]['outcome']} {found[url]['detail']}" for url in sorted(invented)),
        f"wget --spider -r: {len(theirs)} found, {len(wget - plants.faults)} others, in {wget_took:.0f} s; not which pages hold them",
        *(f"  not found: {url}" for url in sorted(plants.faults - wget)),
        *(f"  no fault: {url}" for url in sorted(wget - plants.faults)),
        f"Holdfast: {mine} requests in {crawled.took:.0f} s",
        f"links to missing places: {len(lost)}, planted {len(LOST)}",
        summary.out,
        html.out + edges.out,
    ]
    report("\n".join(line for line in lines if line))
    assert crawled.code == 0
    assert (missing, invented, wrong) == (set(), set(), set())
    assert failed.code == 1
    assert lost == {"lost-1", "lost-2", "lost-3"}
    written = (tmp_path / "broken.html").read_text()
    assert all(page in written for page in holders.values())
    assert "<script" not in written
