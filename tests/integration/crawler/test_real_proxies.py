"""A crawl through proxies that we did not write, judged by their own logs and by the site's."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.control.secret_box import SecretBox
from holdfast.model.proxy import ProxyMode, parse_proxy
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.proxies.records import ProxyOptions
from tests.support.crawls import Crawls
from tests.support.debian import Server, danted, tinyproxy
from tests.support.pages import Pages, html

HERE = "127.0.0.1"
PAGES = 150
NAMES = [f"/p{number}" for number in range(1, PAGES)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """By how they are written."""

    def folder() -> Path:
        return tmp_path_factory.mktemp("proxy")

    with (
        tinyproxy(folder()) as plain,
        tinyproxy(folder(), user="ann", password="open-sesame") as guarded,
        danted(folder()) as socks,
    ):
        yield {
            f"http://127.0.0.1:{plain.port}": plain,
            f"http://ann:open-sesame@127.0.0.1:{guarded.port}": guarded,
            f"socks5://127.0.0.1:{socks.port}": socks,
        }


def crawl(crawls: Crawls, site: Pages, servers: dict[str, Server]) -> int:
    """Through all of them; what the site was asked for."""
    crawls.begin(site.url("/", HERE))
    ids = []
    for written in map(parse_proxy, servers):
        token = written.password and SecretBox.of(crawls.settings).seal(written.password)
        options = ProxyOptions(max_requests_per_hour=None, allow_private=True)
        made = proxies.add(crawls.connection, proxies.SealedProxy(written.server, token, options), actor="ann")
        assert made is not None
        ids.append(made)
    proxy_pools.assign(crawls.connection, f"{HERE}:{site.port}", ids, default=ProxyMode.DIRECT, actor="ann")
    assert crawls.crawl(site.url("/", HERE), concurrency=5).completed
    return len(site.paths(HERE))


def test_requests_go_round_among_tinyproxy_and_dante(
    crawls: Crawls, servers: dict[str, Server], figure: Callable[[str], None]
) -> None:
    with Pages({"/": html(*NAMES), **dict.fromkeys(NAMES, html())}) as site:
        asked = crawl(crawls, site, servers)
    assert asked == PAGES
    plain, guarded, socks = servers.values()
    through = [len(re.findall(r"GET http://\S+/(?!robots\.txt)", server.log())) for server in (plain, guarded)]
    through.append(asked - sum(through))
    figure(f"{asked} requests through tinyproxy, tinyproxy with a password and dante: {through}")
    turns = [row[0] for row in crawls.rows("SELECT requests FROM domain_proxies ORDER BY proxy_id")]
    assert max(turns) - min(turns) <= 1
    assert "tcp/connect" in socks.log()
    kept = crawls.rows("SELECT success_count, total_failures + proxy_failures FROM domain_proxies ORDER BY proxy_id")
    assert kept == [(count, 0) for count in through]
    # A proxy may close a connection just when it is used again; that was a request, and is in the log.
    broken = crawls.value("SELECT count(*) FROM crawl_log WHERE outcome = 'connection_broken'")
    assert crawls.value("SELECT sum(requests)::bigint FROM domain_proxies") == asked + broken
    assert "open-sesame" not in plain.log() + guarded.log()
    crawls.verify()
