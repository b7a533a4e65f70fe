"""The password of a proxy, looked for everywhere that a crawl leaves traces: output, logs, arguments, the database as pg_dump writes it."""

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.control.secret_box import SecretBox
from holdfast.db import embedded
from holdfast.db.connection import libpq_environment
from holdfast.testing.simweb.proxy_process import ProxyProcess
from tests.support.crawls import Crawls, figures, wait_for
from tests.support.farm import Farm
from tests.support.pages import Pages, html

CANARY = "canary-Kq3!x"


def traces(folder: Path) -> dict[str, bytes]:
    """Every file that the crawl wrote, but those that the proxies have their passwords in."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".password"
    }


def processes() -> bytes:
    """The arguments of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:  # it has ended
            continue
    return b"\n".join(found)


@pytest.mark.parametrize("known", [True, False], ids=["let in", "not let in"])
def test_the_canary_is_nowhere(
    crawls: Crawls, server: embedded.Server, tmp_path: Path, known: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the proxy lets us in with it or not; a proxy that does not is asked again and again."""
    pages = {f"/p{number}": html() for number in range(12)}
    (tmp_path / "proxies").mkdir()
    with (
        Pages({"/": html(*pages)} | pages) as site,
        ProxyProcess(tmp_path / "proxies", name="one", user="crawler", password=CANARY) as one,
    ):
        url = site.url("/", "127.0.0.1")
        crawls.begin(url)
        farm = Farm(crawls, [one]).register()
        farm.assign(f"127.0.0.1:{site.port}")
        if not known:
            one.behave("status", status=407)
        with crawls.start("crawl", url, "--workers", "2", "--delay", "0.05", HOLDFAST_CRAWL_PATIENCE="1s") as program:
            wait_for(lambda: len(farm.asked(0)) >= 5, "some requests")
            seen = processes()
            answer = program.end()
        assert crawls.command("explain", f"127.0.0.1:{site.port}") == 0
        assert crawls.command("proxies", "show", "1", "--json") == 0
    told = capsys.readouterr()
    assert "crawler" in told.out
    assert b"crawl" in seen
    assert CANARY.encode() not in seen
    assert answer.code == (0 if known else 1)
    assert ("no proxy can be used for 127.0.0.1:" in answer.out) is not known
    assert ("ok" in {outcome for some in crawls.outcomes().values() for outcome in some}) is known
    files = traces(tmp_path)
    assert any(name.endswith(".log") for name in files)
    assert [name for name, text in files.items() if CANARY.encode() in text] == []
    assert CANARY not in answer.out + answer.err + told.out + told.err
    dump = subprocess.run(
        [server.bin / "pg_dump"],
        env={**os.environ, **libpq_environment(crawls.database.url)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "gAAAA" in dump, "it is sealed"
    assert CANARY not in dump


def test_a_crawl_says_that_no_key_opens_a_password(crawls: Crawls, tmp_path: Path) -> None:
    with (
        Pages({"/": html()}) as site,
        ProxyProcess(tmp_path, name="one", user="crawler", password=CANARY) as one,
    ):
        url = site.url("/", "127.0.0.1")
        crawls.begin(url)
        Farm(crawls, [one]).register().assign(f"127.0.0.1:{site.port}")
        answer = crawls.run("crawl", url, "--json", HOLDFAST_SECRET_KEY=SecretBox.new_key())
        assert site.asked == []
        assert one.log() == []
    assert "A proxy cannot be used. The secret was sealed with a key that is not in HOLDFAST_SECRET_KEY" in answer.err
    assert (figures(answer)["completed"], figures(answer)["pages"]) == (False, 0)
