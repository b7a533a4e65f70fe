"""The ten lines of docs/client.md, and those of README, as they are written there, with a server and a worker; and a budget."""

import re
from pathlib import Path

import pytest
from pyarrow import parquet

from holdfast import Client
from holdfast.jobs.records import JobProgress
from tests.support.api import Api
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("page", "lines", "written"),
    [
        ("docs/client.md", 10, {"hfk_…": "key", "https://example.com/": "site"}),
        ("README.md", 8, {"http://s0.localhost:8950/": "site"}),
    ],
)
def test_the_lines_do_what_they_say(
    api: Api,
    key: str,
    crawls: Crawls,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    lines: int,
    written: dict[str, str],
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", key)
    found = re.search(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    code = found[1]
    assert len([line for line in code.splitlines() if line.strip()]) == lines
    with Pages({"/": html("/a", "/b"), "/a": html(), "/b": html()}) as site:
        meant = {"key": key, "site": site.url()}
        for text, what in {
            "http://127.0.0.1:8080": api.url,
            **{it: meant[name] for it, name in written.items()},
        }.items():
            assert text in code
            code = code.replace(text, what)
        with crawls.worker(None):
            exec(compile(code, page, "exec"), {})  # noqa: S102 — it is ours
    told = capsys.readouterr().out.splitlines()
    assert site.url("/a") in told[-1] or f"{site.url()} A page" in told
    assert [line for line in told if line.startswith("JobProgress(")][-1].count("state=<JobState.COMPLETED") == 1
    rows = parquet.read_table(crawls.folder / "pages.parquet").to_pylist()
    assert {row["url"] for row in rows} == {site.url(path) for path in ("/", "/a", "/b")}


def test_a_job_is_watched_until_its_budget_is_used_up(api: Api, key: str, crawls: Crawls) -> None:
    with (
        Pages({"/": html("/a", "/b", "/c"), "/a": html(), "/b": html(), "/c": html()}) as site,
        Client(api.url, key=key) as client,
    ):
        job = client.create_job("shop", [site.url()], max_pages=2, allow_private=True)
        with crawls.worker(None):
            last = [news for news in client.watch(job) if isinstance(news, JobProgress)][-1]
            assert (last.state, last.out_of_budget, last.pages, last.spent, last.waiting) == ("pending", True, 2, 1, 2)
            assert last.is_over
            answer = crawls.run("jobs", "watch", "shop")
            assert (
                "Stopped at 2 pages (`--max-pages 2`); 2 URLs wait.\n`holdfast crawl --job shop` crawls as many"
                in answer.out
            )
        client.add_urls([site.url("/d")], job=job)
        assert client.job(job).is_over, "its domain has no pages left"
        client.add_urls(["https://b.example/"], job=job)
        assert not client.job(job).is_over, "there is something to do, though nobody has begun with it"
