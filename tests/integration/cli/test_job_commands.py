"""`holdfast jobs`: what it answers, to people and to programs, and how it refuses."""

import gzip
import re

import pytest

from tests.support.cli import Cli
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def news(cli: Cli) -> Cli:
    answer = cli(
        "jobs", "create", "news", "https://a.example/x", "b.example", "--max-pages", "500", "--exclude", "/tag/"
    )
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "Made job news with 2 seeds; workers take it up, or `holdfast crawl --job news`.\n"
    return cli


def test_what_was_made_is_listed_and_shown(news: Cli) -> None:
    answer = news("jobs", "list")
    assert (answer.code, answer.err) == (0, "")
    lines = [re.split(r"\s{2,}", line.strip()) for line in answer.out.splitlines()]
    assert lines[0] == ["ID", "JOB", "STATE", "DONE", "WAITING", "FAILED", "DOMAINS", "DEPTH"]
    assert lines[-1] == ["3", "news", "pending", "0", "2", "0", "2", "0"]
    shown = news("jobs", "show", "news").out
    assert re.search(r"^URLs +2: 0 done, 2 waiting, 0 denied, 0 failed$", shown, re.MULTILINE)
    assert re.search(r"^Options .*exclude /tag/, .*max_pages 500", shown, re.MULTILINE)
    told = news("jobs", "show", "3", "--json").json
    assert (told["name"], told["state"], told["spec"]["max_pages"]) == ("news", "pending", 500)
    assert [job["name"] for job in news("jobs", "list", "--json").json] == ["default", "tasks", "news"]


def test_a_damaged_seed_file_is_an_error_though_the_job_is_made(cli: Cli) -> None:
    packed = gzip.compress(b"".join(b"https://h%d.example/%d\n" % (n, n * 7919) for n in range(1, 3000)))
    (cli.folder / "seeds.gz").write_bytes(packed[: len(packed) // 2])
    made = cli("jobs", "create", "cut", "--seeds", str(cli.folder / "seeds.gz"))
    assert made.code == 1
    assert re.match(r"Made job cut with [\d,]+ seeds;", made.out)
    assert re.search(
        r"^Error: Reading stopped after line \d+: the gzip file is damaged or incomplete\.$", made.err, re.MULTILINE
    )


def test_pause_resume_and_cancel_say_what_became_of_it(news: Cli) -> None:
    assert news("jobs", "pause", "news").out == "Job news is paused.\n"
    assert news("jobs", "pause", "news").out == "Job news is already paused.\n"
    assert news("jobs", "pause", "3", "--json").json == {"id": 3, "job": "news", "state": "paused", "changed": False}
    assert news("jobs", "resume", "news").out == "Job news is queued for workers.\n"
    assert news("jobs", "cancel", "news").out == "Job news is cancelled.\n"
    refused = news("jobs", "resume", "news")
    assert (refused.code, refused.out, refused.err) == (5, "", "Error: Job news is cancelled; you cannot resume it.\n")


def test_who_did_it_is_in_the_audit_log(news: Cli, store: Store) -> None:
    news("jobs", "pause", "news")
    news("jobs", "pause", "news")  # changes nothing, leaves nothing
    news("jobs", "delete", "news", "--yes")
    found = store.connection.execute(
        "SELECT action, object_kind, object_id, actor LIKE 'cli:_%' FROM audit_log ORDER BY id"
    )
    assert found.fetchall() == [(action, "job", "3", True) for action in ("create", "pause", "delete")]


def test_deleting_is_asked_about(news: Cli, store: Store) -> None:
    refused = news("jobs", "delete", "news")
    assert refused.code == 5
    assert "Nothing was deleted." in refused.err
    assert news("jobs", "delete", "news", "--yes").out == "Deleted job news.\n"
    assert store.value("SELECT count(*) FROM url_frontier") == 0
    assert news("jobs", "show", "news").code == 4
    assert news("jobs", "delete", "default", "--yes").err.startswith(
        "Error: Job default is a standing one and cannot be deleted"
    )
    assert_invariants(store.connection)


def test_a_name_that_is_taken_and_a_job_without_seeds_are_refused(news: Cli, store: Store) -> None:
    taken = news("jobs", "create", "news", "https://c.example/")
    assert (taken.code, taken.err) == (5, "Error: There is a job called 'news' already.\n")
    assert news("jobs", "create", "empty").err == "Error: Name what to crawl: URLs, or --seeds FILE.\n"
    assert store.value("SELECT count(*) FROM domains") == 2


def test_bad_seeds_are_told_and_the_rest_is_kept(cli: Cli) -> None:
    answer = cli("jobs", "create", "some", "https://a.example/", "http://", "--json")
    assert answer.code == 1
    assert answer.err.startswith("not a seed: ")
    assert (answer.json["seeds"], answer.json["bad"]) == (1, 1)


def test_bad_arguments_are_told_beside_the_bad_lines_of_a_file(cli: Cli) -> None:
    file = cli.folder / "seeds.txt"
    file.write_text("# two\na.example\n\nhttp://\n")
    answer = cli("jobs", "create", "some", "http://x-/", "b.example", "--seeds", str(file), "--json")
    first, second = answer.err.splitlines()
    assert first == "not a seed: 'http://x-/' names a host with a part that begins or ends with a hyphen."
    assert second.startswith(f"not a seed, line 4 of {file}: ")
    assert (answer.code, answer.json["seeds"], answer.json["bad"]) == (1, 2, 2)


def test_an_ended_job_is_not_watched_for_ever(news: Cli) -> None:
    news("jobs", "cancel", "news")
    answer = news("jobs", "watch", "news")
    assert answer.code == 0
    assert answer.out.endswith("Job news was cancelled; `holdfast crawl --job news --again` starts it again.\n")


def test_a_job_that_is_not_there(cli: Cli) -> None:
    for command in ["show", "pause", "resume", "cancel", "delete", "watch"]:
        answer = cli("jobs", command, "nothing")
        assert (answer.code, answer.err) == (4, "Error: There is no job called 'nothing'.\n"), command


def test_a_schedule_is_set_shown_and_taken_away(news: Cli) -> None:
    answer = news("jobs", "schedule", "news", "6h")
    assert re.fullmatch(r"It is crawled again at \d{4}-\d\d-\d\d \d\d:\d\d UTC\.\n", answer.out)
    assert news("jobs", "show", "news", "--json").json["schedule"] == "6h"
    assert re.search(r"^Schedule +6h, next at .+ UTC$", news("jobs", "show", "news").out, re.MULTILINE)
    refused = news("jobs", "schedule", "news", "every now and then")
    assert (refused.code, refused.out) == (2, "")
    assert news("jobs", "schedule", "news").code == 2
    assert news("jobs", "schedule", "news", "--off").out == "It is not crawled again by itself any more.\n"
    assert news("jobs", "show", "news", "--json").json["next_run_at"] is None


def test_a_schedule_that_is_none_makes_no_job(cli: Cli) -> None:
    answer = cli("jobs", "create", "x", "https://a.example/", "--schedule", "61 * * * *")
    assert answer.code == 2
    assert cli("jobs", "show", "x").code == 4


def test_no_job_is_called_like_the_id_of_another(news: Cli) -> None:
    """Whoever names a job by its id means that one."""
    assert "also named by their ids" in news("jobs", "create", "3", "https://c.example/").refused(2)
    assert news("jobs", "delete", "3", "--yes").out == "Deleted job news.\n"
    assert [job["name"] for job in news("jobs", "list", "--json").json] == ["default", "tasks"]


@pytest.mark.parametrize(
    "arguments", [("crawl", "--job", "tasks"), ("jobs", "cancel", "tasks"), ("jobs", "schedule", "tasks", "6h")]
)
def test_the_job_of_the_tasks_is_left_alone(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert "the one of all tasks" in cli(*arguments).refused(5)


def test_rules_are_previewed_edited_listed_and_undone(news: Cli, store: Store) -> None:
    words = ("exclude=/tag/", "exclude=[.]pdf$", "scope=domain")
    dry = news("jobs", "set", "news", *words, "--dry-run")
    assert (dry.code, dry.out) == (
        0,
        "It would remove 0 waiting URLs and return 0 URLs that the rules left out. Nothing was changed.\n",
    )
    assert news("jobs", "set", "news", *words, "--dry-run", "--json").json["exact"] is True
    assert news("jobs", "set", "news", "delay=2", "--dry-run").code == 2
    assert re.search(r"^Rules +as it was created$", news("jobs", "show", "news").out, re.MULTILINE)
    edited = news("jobs", "set", "news", *words)
    assert edited.out.startswith("Job news: changed scope, exclude. ")
    assert "`holdfast jobs undo-scope news` takes back the edit of its rules." in edited.out
    told = news("jobs", "show", "news", "--json").json
    assert (told["rules_version"], told["spec"]["exclude"], told["spec"]["scope"]) == (
        1,
        ["/tag/", "[.]pdf$"],
        "domain",
    )
    assert re.search(r"^Rules +version 1$", news("jobs", "show", "news").out, re.MULTILINE)
    assert news("jobs", "set", "news", "exclude=", "--json").json["changed"] == ["exclude"]
    assert news("jobs", "undo-scope", "news").out.startswith("Job news: changed exclude. ")
    assert news("jobs", "undo-scope", "news", "--json").json["changed"] == ["scope", "exclude"]
    refused = news("jobs", "undo-scope", "news")
    assert (refused.code, refused.out) == (5, "")
    assert refused.err == "Error: The rules of job news are those that it was created with: there is no edit to undo.\n"
    assert [one["restores"] for one in news("jobs", "scope-history", "news", "--json").json] == [None, None, None, 1, 0]
    assert "scope=domain exclude=/tag/ exclude=[.]pdf$" in news("jobs", "scope-history", "news").out
    bad = news("jobs", "set", "news", "scope=planet")
    assert (bad.code, "must be host, domain, any or empty" in bad.err) == (2, True)
    assert_invariants(store.connection)
