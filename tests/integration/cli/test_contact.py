"""Whom sites can write to: the first crawl says how to name somebody, and says it once."""

import pytest

from tests.support.crawls import Crawls
from tests.support.pages import Pages, html

HINT = "set crawl.contact, for example with `export HOLDFAST_CRAWL_CONTACT=you@example.org`"


def test_the_first_crawl_says_how_to_name_a_contact(crawls: Crawls, capfd: pytest.CaptureFixture[str]) -> None:
    with Pages({"/": html(), "/b": html()}) as site:
        url = site.url("/", "127.0.0.1")
        codes, said = [], []
        for arguments in ((url,), (url, "--again"), (site.url("/b", "127.0.0.1"),)):
            codes.append(crawls.command("crawl", *arguments, "--workers", "1"))
            said.append(capfd.readouterr())
    assert codes == [0, 0, 0]
    assert [HINT in each.err for each in said] == [True, False, False]
    assert not [each for each in said if HINT in each.out]


@pytest.mark.parametrize("how", ["contact", "user agent", "json"])
def test_nothing_is_said_where_a_contact_is_named_or_a_program_reads(
    crawls: Crawls, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    options = {"contact": [], "user agent": ["--user-agent", "Ann/1.0"], "json": ["--json"]}[how]
    if how == "contact":
        crawls.set(crawl={"contact": "https://a.example/bot"})
    with Pages({"/": html()}) as site:
        assert crawls.command("crawl", site.url("/", "127.0.0.1"), "--workers", "1", *options) == 0
        agents = {headers["user-agent"] for _, headers in site.headers}
    assert HINT not in capfd.readouterr().err
    if how == "contact":
        (agent,) = agents
        assert agent.startswith("Holdfast/")
        assert agent.endswith(" (+https://a.example/bot)")
