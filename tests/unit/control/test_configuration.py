"""Settings for people: rows with their sources, the verdict, and a page that says what the code does."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from holdfast.control.settings_docs import Row, check, render_markdown, rows
from holdfast.errors import SettingsError
from holdfast.settings import catalog, groups, load, masked

ROOT = Path(__file__).parents[3]
REFUSED = (
    "database_url (given as an option) must be a URL such as postgresql://user:password@host/database, "
    "with @ / ? in it as %40 %2F %3F."
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, so that nobody's holdfast.toml is read."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_name(shown: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in shown}


def test_rows_show_value_source_and_default(folder: Path) -> None:
    (folder / "holdfast.toml").write_text("[urls]\ntracking_parameters = ['a', 'b_*']\n", encoding="utf-8")
    settings = load(
        environ={"HOLDFAST_CLAIMS_LEASE": "5400", "ENABLE_REFRESH_MODE": "no"}, options={"data": Path("elsewhere")}
    )
    found = by_name(rows(settings))
    assert found["claims.lease"] == Row(
        name="claims.lease",
        value="1h30m",
        source="environment",
        default="30m",
        env="HOLDFAST_CLAIMS_LEASE",
        description="How long a claim lasts without renewal; a worker renews every third of it.",
    )
    shown = {name: (row.value, row.source, row.default) for name, row in found.items()}
    assert shown["data"] == ("elsewhere", "option", ".holdfast")
    assert shown["database_url"] == ("not set", "default", "not set")
    assert shown["urls.tracking_parameters"][:2] == ("a, b_*", "file")
    assert shown["rollout.refresh_mode"] == ("false", "environment", "true")
    assert shown["cooldown.jitter"] == ("0.1", "default", "0.1")
    assert list(found) == [setting.name for setting in catalog()]


def test_by_default_every_value_is_its_default() -> None:
    assert all(row.value == row.default and row.source == "default" for row in rows(load(environ={})))


def test_rows_never_show_the_password() -> None:
    settings = load(environ={"HOLDFAST_DATABASE_URL": "postgresql://u:geheim@db.example/crawl"})
    shown = rows(settings)
    assert by_name(shown)["database_url"].value == "postgresql://u:***@db.example/crawl"
    assert "geheim" not in repr(shown)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:geheim@h/db", "postgresql://u:***@h/db"),
        ("postgres://u:ge:heim@[::1]:5432,h2/db", "postgres://u:***@[::1]:5432,h2/db"),
        ("postgresql://:geheim@h", "postgresql://:***@h"),
        ("postgresql://u@h:5432/db", "postgresql://u@h:5432/db"),
        ("postgresql://h:5432/db?sslmode=require", "postgresql://h:5432/db?sslmode=require"),
        ("postgresql:///db?host=/tmp/x&password=geheim", "postgresql:///db?host=/tmp/x&password=***"),
        ("postgresql://h/?sslpassword=geheim&user=u", "postgresql://h/?sslpassword=***&user=u"),
        ("host=h password=geheim", "***"),
    ],
)
def test_a_database_s_password_is_masked(url: str, shown: str) -> None:
    assert masked(SecretStr(url)) == shown


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]) | st.sampled_from("@/?:&=#% "), min_size=1))
def test_no_password_is_ever_shown_whatever_it_contains(password: str) -> None:
    url = f"postgresql://u:{password}@h/db"
    try:
        settings = load(environ={}, options={"database_url": url})
        assert settings.database_url == SecretStr(url)
        assert "SecretStr('**********')" in repr(settings)
        shown = masked(settings.database_url)
    except SettingsError as error:
        shown = str(error)
    assert shown in {"postgresql://u:***@h/db", REFUSED}


def test_check_says_what_is_wrong_or_nothing(folder: Path) -> None:
    assert check(environ={}) == []
    assert check(environ={"HOLDFAST_CLAIMS_BATCH": "0", "HOLDFAST_ZZZ": "1"}) == [
        "The environment variable 'HOLDFAST_ZZZ' is not a setting.",
        "HOLDFAST_CLAIMS_BATCH must be at least 1, not '0'.",
    ]
    assert check(file=folder / "gone.toml", environ={}) == [f"There is no settings file {folder / 'gone.toml'}."]


def test_every_setting_has_its_own_name_and_a_sentence() -> None:
    names = [name for setting in catalog() for name in (setting.env, *setting.aliases)]
    assert len(names) == len(set(names))
    for setting in catalog():
        assert setting.env == "HOLDFAST_" + setting.name.replace(".", "_").upper()
        assert setting.description.endswith("."), setting.name
        assert setting.description.count("\n") == 0
    secret = [
        "database_url",
        "secret_key",
        "redis_url",
        "api_key",
        "archive.access_key",
        "archive.secret_key",
        "images.access_key",
        "images.secret_key",
        "webhook.secret",
        "retention.access_key",
        "retention.secret_key",
    ]
    assert [setting.name for setting in catalog() if setting.secret] == secret


def test_the_page_in_docs_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == render_markdown(), (
        "docs/configuration.md is out of date; run: python -m holdfast.control.settings_docs > docs/configuration.md"
    )


def test_the_command_that_regenerates_the_page_writes_it() -> None:
    command = [sys.executable, "-m", "holdfast.control.settings_docs"]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, cwd=ROOT)
    assert run.stdout == render_markdown()


def test_the_page_names_every_setting_in_whole_tables() -> None:
    page = render_markdown()
    for setting in catalog():
        assert (
            len(re.findall(rf"^\| `{setting.name.rpartition('.')[2]}` \| `{setting.env}` \|", page, re.MULTILINE)) == 1
        )
        for alias in setting.aliases[:1]:
            assert f"| `{alias}` | `{setting.name}` |" in page
    for group in groups():
        assert f"\n## [{group}]\n" in page
    widths = {line.count("|") for line in page.splitlines() if line.startswith("|")}
    assert widths == {3, 5}, "a | within a cell would break the table"


def test_the_page_s_example_is_a_valid_file_also_with_its_comments_taken_off(folder: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", render_markdown(), re.DOTALL)
    assert example
    for text in (example[1], example[1].replace("# database_url", "database_url")):
        (folder / "holdfast.toml").write_text(text, encoding="utf-8")
        settings = load(environ={})
        changed = {row.name for row in rows(settings) if row.source == "file"}
        assert len(changed) == sum(len(v) if isinstance(v, dict) else 1 for v in tomllib.loads(text).values())
        assert all(row.value != row.default for row in rows(settings) if row.name in changed), (
            "an example shows changes"
        )
