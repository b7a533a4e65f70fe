"""`holdfast jobs create --dry-run`, `plan`, `retry` and `log`: what they answer, to people and to programs, and how they refuse."""

import pytest

from holdfast.db.connection import Database
from tests.support.cli import Cli
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def crawled(cli: Cli, database: Database, store: Store) -> Cli:
    crawl_a_little(database, store)
    return cli


def test_a_job_is_planned_and_not_made(cli: Cli, store: Store) -> None:
    answer = cli(
        "jobs", "create", "news", "https://a.example", "--max-pages-per-domain", "7200", "--delay", "1", "--dry-run"
    )
    assert (answer.code, answer.err) == (0, "")
    assert "7,200" in answer.out
    assert "2 h" in answer.out
    assert "- 1 domain reaches a limit of 7,200 pages (`--max-pages-per-domain`)." in answer.out
    (cli.folder / "seeds.txt").write_text("a.example\nnot a domain\n")
    told = cli("jobs", "create", "news", "--seeds", str(cli.folder / "seeds.txt"), "--dry-run", "--json")
    assert (told.code, told.json["unknown_domains"], told.json["bad_seeds"][0]["line"]) == (1, 1, 2)
    assert "line 2 of" in told.err
    assert store.value("SELECT count(*) FROM crawl_jobs") == 2
    refused = cli("jobs", "create", "default", "https://a.example", "--dry-run")
    assert (refused.code, refused.out) == (5, "")


def test_an_existing_job_is_planned(crawled: Cli) -> None:
    answer = crawled("jobs", "plan", "default")
    assert answer.code == 0
    assert "example.com" in answer.out
    left, whole = (
        crawled("jobs", "plan", "default", "--json").json,
        crawled("jobs", "plan", "default", "--again", "--json").json,
    )
    assert left["pages"] < whole["pages"]
    assert crawled("jobs", "plan", "nothing").code != 0


def test_urls_are_counted_asked_about_and_retried(crawled: Cli, store: Store) -> None:
    counted = crawled("jobs", "retry", "default", "--reason", "not_found", "--dry-run")
    assert counted.out == "1 URL on 1 domain (1 not_found) would be retried.\n"
    refused = crawled("jobs", "retry", "default", "--reason", "not_found")
    assert refused.code == 5
    assert store.value("SELECT state::text FROM url_frontier WHERE url LIKE '%%/gone'") == "done"
    done = crawled("jobs", "retry", "default", "--reason", "not_found", "--yes")
    assert (done.code, done.out) == (0, "Retried 1 URL on 1 domain (1 not_found).\n")
    assert store.value("SELECT state::text FROM url_frontier WHERE url LIKE '%%/gone'") == "waiting"
    left = crawled("jobs", "retry", "default", "--url", "https://example.com/never", "--yes")
    assert left.out.splitlines() == [
        "Job default has no such URL to retry; `holdfast jobs show default` lists reasons.",
        "Left out: https://example.com/never (unknown): the job does not know it; `holdfast crawl URL --job default` adds it.",
    ]
    deep = crawled("jobs", "retry", "default", "--reason", "too_deep", "--yes")
    assert (deep.code, "holdfast jobs set default max_depth=N" in deep.err) == (5, True)
    assert crawled("jobs", "retry", "default", "--reason", "none", "--yes").code == 2
    assert crawled("jobs", "retry", "default", "--state", "denied", "--dry-run", "--json").json["by_reason"] == {
        "robots_denied": 1
    }
    assert_invariants(store.connection)


def test_the_log_is_shown(crawled: Cli) -> None:
    crawled("jobs", "pause", "default")
    lines = crawled("jobs", "log", "default").out.splitlines()
    assert lines[0].split() == ["WHEN", "(UTC)", "KIND", "WHO", "WHAT"]
    assert any(line.endswith("paused") for line in lines[:4])
    told = crawled("jobs", "log", "default", "--limit", "1", "--json").json
    assert [(one["kind"], one["text"]) for one in told] == [("state", "paused")]
