"""The ten lines of docs/client.md, as they are written there, with a server and a worker."""

import re
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.support.api import Api
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def test_the_ten_lines_do_what_they_say(api: Api, key: str, crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    code = found[1]
    assert len([line for line in code.splitlines() if line.strip()]) == 10
    with Pages({"/": html("/a", "/b"), "/a": html(), "/b": html()}) as site:
        for written, meant in (
            ("http://127.0.0.1:8080", api.url),
            ("hfk_…", key),
            ("https://example.com/", site.url()),
        ):
            assert written in code
            code = code.replace(written, meant)
        with crawls.worker(None):
            exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102 — it is ours
    told = capsys.readouterr().out.splitlines()
    assert f"{site.url()} A page" in told
    assert [line for line in told if line.startswith("JobProgress(")][-1].count("state='completed'") == 1
    rows = parquet.read_table(crawls.folder / "pages.parquet").to_pylist()
    assert {row["url"] for row in rows} == {site.url(path) for path in ("/", "/a", "/b")}
