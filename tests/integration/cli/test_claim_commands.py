"""Claims and runs from the command line: who holds what, and freeing what is stuck (001, workstreams D and E)."""

import re

import pytest

from holdfast.db import runs
from tests.support.cli import Cli
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

FORCE = ["release-stuck-claims", "--force"]
NO_TARGET = "--force needs a target: --worker-id ID, --domain NAME or --all-active."
TWO_TARGETS = "Give one of --worker-id, --domain and --all-active, not several."
NOBODY_TO_ASK = "There is no terminal to ask on; --yes confirms."


@pytest.fixture
def held(store: Store) -> Store:
    """Two claims of crawler-7, one of them expired, and one of crawler-8."""
    store.domains(4)
    first, _ = store.claim("crawler-7", 2)
    store.claim("crawler-8", 1)
    store.expire(first.domain_id)
    return store


@pytest.fixture
def silent(store: Store) -> tuple[int, int]:
    """A run that was last heard of 90 minutes ago, and one that lives."""
    dead, alive = (runs.begin(store.connection, worker=f"crawler-{i}") for i in (1, 2))
    store.connection.execute(
        "UPDATE crawl_runs SET started_at = now() - interval '2 h', heartbeat_at = now() - interval '90 min' WHERE id = %s",
        (dead,),
    )
    return dead, alive


def _holders(store: Store) -> list[str]:
    rows = store.connection.execute("SELECT claimed_by FROM domains WHERE claimed_by IS NOT NULL ORDER BY id")
    return [row[0] for row in rows]


def _status(store: Store, run: int) -> object:
    return store.value("SELECT status::text FROM crawl_runs WHERE id = %s", run)


def test_claims_show_who_holds_what_has_expired_and_waits(cli: Cli, held: Store) -> None:
    answer = cli("claims")
    time = r"20\d\d-\d\d-\d\d \d\d:\d\d"
    assert (answer.code, answer.err) == (0, "")
    for pattern in (
        r"WORKER     CLAIMS  EXPIRED  FIRST EXPIRY",
        rf"crawler-7       2        1  {time}",
        rf"crawler-8       1        0  {time}",
        rf"d\d\.example  crawler-7  {time}",
        r"Waiting to be claimed: 1 pending\. Cooling down: 0\.",
    ):
        assert re.search(rf"^{pattern}$", answer.out, re.MULTILINE), pattern
    overview = cli("claims", "--json").json
    assert [(w["worker"], w["claims"], w["expired"]) for w in overview["workers"]] == [
        ("crawler-7", 2, 1),
        ("crawler-8", 1, 0),
    ]
    assert [claim["worker"] for claim in overview["expired"]] == ["crawler-7"]
    assert (overview["waiting"], overview["cooling"]) == ({"pending": 1}, 0)


def test_claims_of_nobody_and_of_more_than_fit(cli: Cli, store: Store) -> None:
    assert cli("claims").out == "No domain is held.\n\nWaiting to be claimed: none. Cooling down: 0.\n"
    store.domains(103)
    store.expire(*(claim.domain_id for claim in store.claim("w1", 103)))
    answer = cli("claims")
    assert answer.err == "… and 3 more\n"
    assert len(answer.out.splitlines()) == 3 + 2 + 2 + 100 + 2


def test_expired_claims_are_released_without_asking(cli: Cli, held: Store) -> None:
    assert cli("release-stuck-claims", "--dry-run").out == "Would release 1 stuck claim of 1 worker.\n"
    assert _holders(held) == ["crawler-7", "crawler-7", "crawler-8"]
    assert cli("release-stuck-claims").out == "Released 1 stuck claim.\n"
    assert _holders(held) == ["crawler-7", "crawler-8"]
    assert cli("release-stuck-claims").out == "Released 0 stuck claims.\n"
    assert_invariants(held.connection)


def test_a_dead_workers_claims_are_released_and_its_writes_fenced_off(cli: Cli, store: Store) -> None:
    store.domains(2)
    claim, other = store.claim_one("dead"), store.claim_one("alive")
    assert cli(*FORCE, "--worker-id", "dead", "--dry-run").out == "Would release 1 claim of worker dead.\n"
    assert cli(*FORCE, "--worker-id", "dead", "--yes").out == "Released 1 claim.\n"
    assert not store.flush(claim, "dead", pages_crawled=1)
    assert store.flush(other, "alive", pages_crawled=1)
    assert store.value("SELECT why FROM claim_log WHERE worker = 'dead'") == "forced"
    assert [claim.domain for claim in store.claim("next")] == [claim.domain]
    assert_invariants(store.connection)


def test_the_claim_on_one_domain_is_released(cli: Cli, store: Store) -> None:
    store.domains(3)
    claim, other = store.claim("w1", 2)
    named = [*FORCE, "--domain", claim.domain.upper()]
    assert cli(*named, "--dry-run").out == f"Would release 1 claim of worker w1 on {claim.domain.upper()}.\n"
    answer = cli(*named, stdin="n\n")
    assert answer.err == f"Release 1 claim of worker w1 on {claim.domain.upper()}? [y/N] Error: Nothing was released.\n"
    assert len(_holders(store)) == 2
    assert cli(*named, "--yes").out == "Released 1 claim.\n"
    assert not store.flush(claim, "w1", pages_crawled=1), "its writes are fenced off"
    assert store.flush(other, "w1", pages_crawled=1)
    row = store.connection.execute("SELECT action, object_kind, object_id, details ->> 'why' FROM audit_log").fetchall()
    assert row == [("release", "claims", claim.domain, "forced")]
    assert cli(*named, "--yes").refused(4) == f"No worker holds {claim.domain.upper()}."
    assert "nowhere.example" in cli(*FORCE, "--domain", "nowhere.example", "--yes").refused(4)
    assert_invariants(store.connection)


def test_all_active_claims_are_released(cli: Cli, held: Store) -> None:
    preview = cli(*FORCE, "--all-active", "--dry-run", "--json").json
    assert (preview["released"], preview["would_release"], len(preview["workers"])) == (0, 3, 2)
    assert len(_holders(held)) == 3
    answer = cli(*FORCE, "--all-active", "--yes", "--json").json
    assert answer["released"] == 3
    assert [row["worker"] for row in answer["workers"]] == ["crawler-7", "crawler-8"]
    assert _holders(held) == []
    assert cli(*FORCE, "--all-active").out == "Released 0 claims.\n"  # nothing to take away: nothing to ask


def test_force_asks(cli: Cli, held: Store) -> None:
    assert cli(*FORCE, "--worker-id", "crawler-9").refused(4) == "No worker called 'crawler-9' holds a claim."
    # Nobody is asked who is not there.
    answer = cli(*FORCE, "--all-active", stdin=b"y\n")
    assert answer.refused(5) == f"Nothing was released. {NOBODY_TO_ASK}"
    for typed in ("n\n", "\n", "yesterday\n", " "):
        answer = cli(*FORCE, "--worker-id", "crawler-7", "--json", stdin=typed)
        assert (answer.code, answer.out) == (5, ""), typed
        assert answer.err == "Release 2 claims of worker crawler-7? [y/N] Error: Nothing was released.\n"
    assert len(_holders(held)) == 3
    answer = cli(*FORCE, "--worker-id", "crawler-8", stdin="YES\n")
    assert (answer.code, answer.out) == (0, "Released 1 claim.\n")
    answer = cli(*FORCE, "--all-active", stdin="y\n")
    assert (answer.code, answer.out) == (0, "Released 2 claims.\n")
    assert answer.err == "Release 2 claims of 1 worker? [y/N] "
    assert _holders(held) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--all-active"], "--all-active requires --force."),
        (["--all-active", "--yes", "--dry-run"], "--all-active requires --force."),
        (
            ["--worker-id", "x"],
            "--worker-id requires --force; without it only claims that expired or whose worker is dead are released.",
        ),
        (
            ["--domain", "a.example"],
            "--domain requires --force; without it only claims that expired or whose worker is dead are released.",
        ),
        (["--force"], NO_TARGET),
        (["--force", "--yes"], NO_TARGET),
        (["--force", "--all-active", "--worker-id", "x"], TWO_TARGETS),
        (["--force", "--all-active", "--worker-id", ""], TWO_TARGETS),
        (["--force", "--all-active", "--domain", "a.example"], TWO_TARGETS),
        (["--force", "--worker-id", "x", "--domain", "a.example"], TWO_TARGETS),
    ],
)
def test_what_cannot_be_meant_is_refused_without_a_database(bare_cli: Cli, options: list[str], sentence: str) -> None:
    assert bare_cli("release-stuck-claims", *options).refused(2) == sentence


def test_stale_runs_are_shown_then_marked(cli: Cli, store: Store, silent: tuple[int, int]) -> None:
    dead, alive = silent
    preview = cli("cleanup-stale-runs", "--dry-run")
    assert preview.out.splitlines()[0].split() == ["RUN", "WORKER", "STARTED", "LAST", "HEARD", "PAGES"]
    assert re.match(rf" +{dead}  crawler-1  .+ 0$", preview.out.splitlines()[2])
    assert preview.out.splitlines()[3:] == ["Would mark 1 run as failed."]
    assert _status(store, dead) == "running"
    assert cli("cleanup-stale-runs", "--yes").out.splitlines()[-1] == "Marked 1 run as failed."
    assert (_status(store, dead), _status(store, alive)) == ("failed", "running")
    assert (
        store.value("SELECT error_message FROM crawl_runs WHERE id = %s", dead) == "Marked stale: no activity timeout"
    )
    assert cli("cleanup-stale-runs", "--yes").out == "No stale runs found.\n"


def test_how_long_a_run_must_have_been_silent(cli: Cli, silent: tuple[int, int]) -> None:
    dead, _ = silent
    found = cli("cleanup-stale-runs", "--older-than-minutes", "89", "--dry-run", "--json")
    assert found.json == {"marked": [], "would_mark": [dead]}
    assert cli("cleanup-stale-runs", "--older-than-minutes", "91", "--json").json == {"marked": [], "would_mark": []}
    assert cli("cleanup-stale-runs", "--yes", "--json").json == {"marked": [dead]}


def test_cleanup_asks(cli: Cli, store: Store, silent: tuple[int, int]) -> None:
    piped = cli("cleanup-stale-runs", stdin=b"y\n")
    assert (piped.code, piped.err) == (5, f"Error: Nothing was changed. {NOBODY_TO_ASK}\n")
    no = cli("cleanup-stale-runs", stdin="n\n")
    assert (no.code, no.err) == (5, "Mark 1 run as failed? [y/N] Error: Nothing was changed.\n")
    assert _status(store, silent[0]) == "running"
    yes = cli("cleanup-stale-runs", stdin="y\n")
    assert (yes.code, yes.out.splitlines()[-1]) == (0, "Marked 1 run as failed.")
    assert _status(store, silent[0]) == "failed"


@pytest.mark.parametrize("minutes", ["0", "-1", "x", "99999999999"])
def test_minutes_that_cannot_be_meant(bare_cli: Cli, minutes: str) -> None:
    sentence = bare_cli("cleanup-stale-runs", "--older-than-minutes", minutes).refused(2)
    assert sentence.startswith("Invalid value for '--older-than-minutes': ")
