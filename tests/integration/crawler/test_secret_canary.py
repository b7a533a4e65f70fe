"""Headers, cookies and a password that a person gave: the site has seen them, and nothing else that a crawl leaves behind has them."""

import base64
import gzip
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import factories
from holdfast.db import embedded
from holdfast.db.connection import libpq_environment
from holdfast.jobs.service import JobService
from holdfast.model.request_secrets import RequestSecrets
from tests.support.crawls import Crawls, figures, wait_for
from tests.support.pages import Page, Pages, html, moved

KEY, COOKIE, PASSWORD, DOMAIN = "canary-h7Qx", "canary-c3Zk", "canary-p9!m", "canary-d1Wv"
LOGIN = base64.b64encode(f"bob:{PASSWORD}".encode()).decode()
EVERY = (KEY, COOKIE, PASSWORD, DOMAIN, LOGIN, LOGIN.rstrip("="))


def everything(folder: Path) -> bytes:
    """The files of a folder; compressed ones also as they are without it."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found += [data, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else b""]
    return b"\n".join(found)


def dumped(crawls: Crawls, server: embedded.Server) -> str:
    """All that the database has, as pg_dump writes it."""
    environment = {**os.environ, **libpq_environment(crawls.database.url)}
    done = subprocess.run([server.bin / "pg_dump"], env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def values(headers: dict[str, str]) -> tuple[str | None, ...]:
    return tuple(headers.get(name) for name in ("x-key", "cookie", "authorization", "x-domain"))


def test_secrets_reach_the_site_and_nothing_else(
    crawls: Crawls, server: embedded.Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "headers").write_text(f"# for the wiki\nX-Key: {KEY}\n")
    (secrets / "login").write_text(f"bob:{PASSWORD}\n")
    robots = Page(b"User-agent: librarian\nDisallow: /no\n\nUser-agent: *\nDisallow: /\n")
    with Pages({"/x": html(), "/y": html(), "/robots.txt": Page()}) as other:
        pages = {
            "/": html("/p", "/no", "/away", other.url("/x", "127.0.0.1")),
            "/p": html(),
            "/away": moved(other.url("/y", "127.0.0.1")),
            "/robots.txt": robots,
        }
        with Pages(pages) as site:
            url = site.url("/", "127.0.0.1")
            made = crawls.run(
                *("jobs", "create", "wiki", url, "--scope", "any", "--allow-private", "--delay", "0"),
                *("--header", f"@{secrets / 'headers'}", "--cookie", "env:COOKIES", "--basic-auth", "@secrets/login"),
                *("--user-agent", "Librarian/2.0", "--json"),
                COOKIES=f"s={COOKIE}",
            )
            name = f"127.0.0.1:{site.port}"
            refused = crawls.command("domain-set", name, f"header=Host: {DOMAIN}")
            given = crawls.command("domain-set", f"http://{name}", f"header=X-Domain: {DOMAIN}")
            answer = crawls.run("crawl", "--job", "wiki", "--json")
            asked, elsewhere = dict(site.headers), dict(other.headers)
            told = [
                crawls.command(*command.split())
                for command in (
                    "jobs show wiki --json",
                    "jobs show wiki",
                    "jobs list --json",
                    f"domain-info {name} --json",
                    f"domain-info {name}",
                    f"explain {url} --json",
                    "audit --json",
                    "config show --json",
                    f"export pages {tmp_path / 'pages.jsonl'}",
                )
            ]
    assert [made.code, given, answer.code] == [0, 0, 0], answer.err
    printed = capsys.readouterr()
    assert told == [0] * len(told), printed.err
    assert (refused, "The header Host cannot be set" in printed.err) == (2, True)
    assert figures(answer)["pages"] == 4
    expected = (KEY, f"s={COOKIE}", f"Basic {LOGIN}", DOMAIN)
    assert {path: values(headers) for path, headers in asked.items()} == dict.fromkeys(
        [f"127.0.0.1{path}" for path in ("/robots.txt", "/", "/p", "/away")], expected
    ), "/no is denied to the librarian alone"
    assert {headers["user-agent"] for headers in asked.values()} == {"Librarian/2.0"}
    assert {path: values(headers) for path, headers in elsewhere.items()} == dict.fromkeys(
        [f"127.0.0.1{path}" for path in ("/robots.txt", "/x", "/y")], (None,) * 4
    )
    files = everything(tmp_path / "data") + (tmp_path / "pages.jsonl").read_bytes()
    assert b"X-Key: [redacted]" in files, "the archive says what was sent, not its value"
    spoken = "".join(each.out + each.err for each in (made, answer)) + printed.out + printed.err
    assert "Authorization" in spoken
    dump = dumped(crawls, server)
    assert "gAAAA" in dump, "they are sealed"
    for secret in EVERY:
        assert secret.encode() not in files
        assert secret not in spoken
        assert secret not in dump


def test_secrets_change_by_name_and_act_on_the_next_visit(crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> None:
    with Pages({"/": html()}) as site:
        url = site.url("/", "127.0.0.1")
        crawls.command("crawl", url, "--job", "wiki", "--allow-private", "--header", "X-Key: one", "--cookie", "a=1")
        for options in (["--header", "X-Key: two"], ["--cookie", ""], []):
            assert crawls.command("crawl", "--job", "wiki", "--again", *options) == 0
        seen = [values(headers)[:2] for path, headers in site.headers if path.endswith("/")]
    assert seen == [("one", "a=1"), ("two", "a=1"), ("two", None), ("two", None)]
    assert capsys.readouterr().err.count("It sends X-Key to the sites of its seeds, as set before.") == 1
    crawls.command("jobs", "delete", "wiki", "--yes")
    assert crawls.value("SELECT count(*) FROM job_secrets") == 0


def test_headers_do_not_make_another_job(crawls: Crawls) -> None:
    with Pages({"/": html()}) as site:
        url = site.url("/", "127.0.0.1")
        given = ("--header", "X-Key: one", "--user-agent", "Other/1.0")
        assert crawls.command("crawl", url, "--allow-private") == 0
        assert crawls.command("crawl", url, "--allow-private", *given, "--again") == 0
        seen = [values(headers)[0] for path, headers in site.headers if path.endswith("/")]
    assert crawls.value("SELECT count(*) FROM crawl_jobs WHERE kind = 'crawl' AND name <> 'default'") == 1
    assert seen == [None, "one"]


@pytest.mark.parametrize("how", ["crawl", "worker"])
def test_without_the_key_nothing_is_asked(crawls: Crawls, how: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Not without the secret either: the site would show its login page, and be marked for it."""
    with Pages({"/": html()}) as site:
        url = site.url("/", "127.0.0.1")
        crawls.command("jobs", "create", "wiki", url, "--allow-private", "--header", "X-Key: one")
        (crawls.folder / "data" / "secret.key").rename(crawls.folder / "away.key")
        crawls.set(crawl={"patience": 1})
        code = crawls.command(how, "--job", "wiki")
        assert site.asked == []
    assert "There is no key to open the secret with" in capfd.readouterr().err
    assert code == (2 if how == "crawl" else 0)


def test_a_login_opens_a_site_that_was_blocked_for_want_of_one(crawls: Crawls) -> None:
    """Without a reset: what removes the reason of a failure is a person's word."""
    with Pages({"/": html("/p"), "/p": html()}, login=LOGIN) as site:
        url = site.url("/", "127.0.0.1")
        assert crawls.command("crawl", url, "--workers", "1") == 1
        assert crawls.domain(f"127.0.0.1:{site.port}")["block_reason_code"] == "login_required"
        assert crawls.command("crawl", url, "--workers", "1", "--basic-auth", f"bob:{PASSWORD}") == 0
        seen = [path for path, headers in site.headers if "authorization" in headers]
    assert seen == [f"127.0.0.1{path}" for path in ("/", "/p")]
    ((actor, details),) = crawls.rows("SELECT actor, details FROM audit_log WHERE action = 'secrets'")
    assert actor.startswith("cli:")
    assert details == {"secrets": ["Authorization"]}, "names, and no value"


def test_a_login_that_a_job_is_given_opens_a_site_under_a_standing_worker(crawls: Crawls) -> None:
    """As `PUT /api/jobs/{job}/secrets` gives it: the job goes on, though it had ended."""
    with Pages({"/": html("/p"), "/p": html()}, login=LOGIN) as site:
        url = site.url("/", "127.0.0.1")
        assert crawls.command("crawl", url, "--workers", "1", "--job", "wiki") == 1
        assert crawls.domain(f"127.0.0.1:{site.port}")["block_reason_code"] == "login_required"
        desk = replace(crawls.desk, sealer=factories.secret_sealer(crawls.settings))
        job_id = crawls.value("SELECT id FROM crawl_jobs WHERE name = 'wiki'")
        secrets = RequestSecrets.parse(None, None, f"bob:{PASSWORD}")
        with crawls.worker(None):
            JobService(crawls.database, "ann").set_secrets(desk, job_id, secrets)
            wait_for(lambda: crawls.total() == 2, "both pages", 20)
            ended = "SELECT state = 'completed' FROM crawl_jobs WHERE name = 'wiki'"
            wait_for(lambda: crawls.value(ended), "the job to be completed", 20)
    crawls.verify()
