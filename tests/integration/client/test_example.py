"""The ten lines of docs/client.md, and those of README, as they are written there, with a server and a worker."""

import re
from pathlib import Path

import pytest
from pyarrow import parquet

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
    assert [line for line in told if line.startswith("JobProgress(")][-1].count("state='completed'") == 1
    rows = parquet.read_table(crawls.folder / "pages.parquet").to_pylist()
    assert {row["url"] for row in rows} == {site.url(path) for path in ("/", "/a", "/b")}
