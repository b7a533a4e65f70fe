"""docs/coming-from-wget.md is true: each command in its table takes the same pages as wget's, and the files come out."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dynamic_site
from tests.support.cli import Cli
from tests.support.dynamic_site import Request, Site, page

GUIDE = Path(__file__).parents[3] / "docs" / "coming-from-wget.md"
ROWS = re.findall(r"^\| `(wget [^`]+)` \| `(holdfast [^`]+)` \|$", GUIDE.read_text(), re.MULTILINE)
SHELL = [shlex.split(line) for line in re.findall(r"^holdfast .*", GUIDE.read_text(), re.MULTILINE)]
CODE = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)

SITE = {
    "/": page("Front", "/docs/", "/news/", "/private/plan.html", "/print-view.html"),
    "/docs/": page("Documentation", "/docs/one.html", "/docs/two.html", "/"),
    "/docs/one.html": page("One", "/docs/deep/three.html", "/docs/two.html"),
    "/docs/two.html": page("Two", "/docs/"),
    "/docs/deep/three.html": page("Three", "/docs/deep/four.html"),
    "/docs/deep/four.html": page("Four", "/"),
    "/news/": page("News", "/news/today.html"),
    "/news/today.html": page("Today", "/news/"),
    "/private/plan.html": page("Plan", "/"),
    "/print-view.html": page("Printed", "/"),
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with dynamic_site.served(lambda path: SITE.get(path, 404), "User-agent: *\nDisallow: /private/\n") as served:
        yield served


def test_the_guide_has_the_usual_commands() -> None:
    assert len(ROWS) >= 12
    told = " ".join(command for command, _ in ROWS)
    for option in ("-l inf", "-np", "-l 2", "--wait", "-R", "--reject-regex", "--header", "--user-agent", "-i "):
        assert option in told


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[command for _, command in ROWS])
def test_a_command_takes_the_pages_that_wget_takes(
    theirs: str, ours: str, cli: Cli, site: Site, tmp_path: Path
) -> None:
    if shutil.which("wget") is None:
        pytest.skip("there is no wget")
    (tmp_path / "urls.txt").write_text(f"{site.url}docs/one.html\n{site.url}news/\n")
    site.log.clear()
    subprocess.run(words(theirs, site), cwd=tmp_path, capture_output=True, check=False, timeout=60)
    wget = pages(site.log)
    if "-R" in theirs:  # it fetches such pages for their links, and removes the files
        wget = {path: sent for path, sent in wget.items() if list(tmp_path.rglob(Path(path).name or "index.html"))}
    site.log.clear()
    delay = [] if "--delay" in ours else ["--delay", "0"]
    answer = cli(*words(ours, site)[1:], *delay, "--allow-private", "--workers", "1")
    assert answer.code == 0, answer
    mine = pages(site.log)
    assert sorted(mine) == sorted(wget)
    assert len(mine) >= 2
    for name in ("X-Team", "Cookie", "Authorization", *(["User-Agent"] if "--user-agent" in theirs else [])):
        assert {sent.get(name) for sent in mine.values()} == {sent.get(name) for sent in wget.values()}


def test_the_files_come_out(cli: Cli, site: Site, tmp_path: Path) -> None:
    assert cli("crawl", site.url, "--delay", "0", "--allow-private", "--workers", "1").code == 0
    site.log.clear()
    assert cli("crawl", site.url, "--delay", "0", "--allow-private", "--workers", "1").code == 0
    assert pages(site.log) == {}  # as the guide says of -c
    assert len(SHELL) == 3
    for words_of_line in SHELL:
        answer = cli(*words_of_line[1:])
        assert answer.code == 0, answer
    assert len((tmp_path / "pages.jsonl").read_text().splitlines()) == 9
    assert "Documentation" in (tmp_path / "texts.jsonl").read_text()
    assert "/private/plan.html" in (tmp_path / "urls.csv").read_text()
    (code,) = CODE
    exec(compile(code, GUIDE.name, "exec"), {})  # noqa: S102 — the guide's own lines
    mirror = tmp_path / "mirror" / f"127.0.0.1:{site.port}"
    files = {f"/{file.relative_to(mirror)}" for file in mirror.rglob("*.html")}
    assert files == {f"{path}index.html" if path.endswith("/") else path for path in SITE if "private" not in path}
    assert (mirror / "docs" / "one.html").read_text() == SITE["/docs/one.html"]


def words(command: str, site: Site) -> list[str]:
    """A command of the guide, on the test's own site."""
    return shlex.split(
        command.replace("https://example.com/", site.url).replace("example.com", f"127.0.0.1:{site.port}")
    )


def pages(log: list[Request]) -> dict[str, dict[str, str]]:
    """Path → headers of the requests for pages."""
    return {each.path: dict(each.headers) for each in log if each.status == 200 and each.path != "/robots.txt"}
