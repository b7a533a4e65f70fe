"""Settings: sources and their order, every complaint as a sentence, no secret in any of them."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.errors import SettingsError
from holdfast.model.duration import MAX_DURATION, parse
from holdfast.model.url import UrlRules
from holdfast.settings import Settings, Urls, catalog, load, render_duration
from holdfast.settings.schema import SEED_NAMES

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ROOT = Path(__file__).parents[2]
CLAIMS_RULE = "ENABLE_CLAIM_PROTOCOL requires ENABLE_SMART_SCHEDULING=true"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, so that nobody's holdfast.toml is read."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaints(
    toml: str | None = None, environ: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> list[str]:
    """The sentences of the SettingsError that loading these ends with."""
    if toml is not None:
        Path("holdfast.toml").write_text(toml, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(environ=environ or {}, options=options)
    assert caught.value.__context__ is None, "a pydantic error behind ours would print the values that it saw"
    return str(caught.value).splitlines()


# --- sources


def test_without_any_source_the_defaults_hold() -> None:
    settings = load(environ={})
    assert settings == Settings()
    assert settings.data == Path(".holdfast")
    assert settings.database_url is None
    assert settings.claims.lease == timedelta(minutes=30)
    assert {settings.origin(setting.name).source for setting in catalog()} == {"default"}


def test_each_source_is_stronger_than_the_one_before() -> None:
    Path("holdfast.toml").write_text('[claims]\nbatch = 1\nlease = "1h"\nsweep_interval = 1\n', encoding="utf-8")
    environ = {"HOLDFAST_CLAIMS_BATCH": "2", "HOLDFAST_CLAIMS_LEASE": "2h"}
    settings = load(environ=environ, options={"claims": {"batch": 3}})
    assert settings.claims.batch == 3
    assert settings.claims.lease == 2 * HOUR
    assert settings.claims.sweep_interval == timedelta(seconds=1)
    names = ("claims.batch", "claims.lease", "claims.sweep_interval", "store.connect_timeout")
    assert [settings.origin(name).source for name in names] == ["option", "environment", "file", "default"]


def test_the_environment_is_the_process_s_own_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", "elsewhere")
    assert load().data == Path("elsewhere")
    assert load(environ={}).data == Path(".holdfast")


def test_a_file_that_is_named_is_read_instead_of_the_folder_s_own(folder: Path) -> None:
    Path("holdfast.toml").write_text("[claims]\nbatch = 1\n", encoding="utf-8")
    named = folder / "other.toml"
    named.write_bytes(b"\xef\xbb\xbf[claims]\r\nbatch = 2\r\n")  # as an editor on Windows saves it
    assert load(environ={}).claims.batch == 1
    assert load(file=named, environ={}).claims.batch == 2


def test_options_may_be_dotted_and_none_means_not_given() -> None:
    settings = load(environ={"HOLDFAST_DATA": "kept"}, options={"data": None, "claims.lease": 60})
    assert settings.data == Path("kept")
    assert settings.claims.lease == timedelta(minutes=1)


def test_an_empty_table_changes_nothing() -> None:
    Path("holdfast.toml").write_text("[claims]\n", encoding="utf-8")
    assert load(environ={}) == Settings()


def test_an_empty_variable_counts_as_not_set() -> None:
    Path("holdfast.toml").write_text("[claims]\nbatch = 7\n", encoding="utf-8")
    assert load(environ={"HOLDFAST_CLAIMS_BATCH": " ", "HOLDFAST_DATABASE_URL": ""}).claims.batch == 7


VALUES: list[tuple[str, str, object]] = [
    ("HOLDFAST_DATA", "/srv/crawl ", Path("/srv/crawl")),
    ("HOLDFAST_DATA", "~/crawl", Path.home() / "crawl"),
    ("HOLDFAST_STORE_STATEMENT_TIMEOUT", "0", timedelta(0)),
    ("HOLDFAST_CLAIMS_LEASE", "5", timedelta(seconds=5)),
    ("HOLDFAST_DOMAINS_REGISTRABLE", "yes", True),
    ("HOLDFAST_DOMAINS_USER_AGENT", "Bot/1 (+https://example.com)", "Bot/1 (+https://example.com)"),
    ("HOLDFAST_COOLDOWN_JITTER", "0.5", 0.5),
    ("HOLDFAST_COOLDOWN_FORBIDDEN", "2 days", 2 * DAY),
    ("HOLDFAST_URLS_TRACKING_PARAMETERS", "utm_*, gclid,", ("utm_*", "gclid")),
    ("HOLDFAST_URLS_SESSION_PARAMETERS", ",", ()),
    ("HOLDFAST_FLUSH_PAGES", "0", 0),
]


@pytest.mark.parametrize(("variable", "text", "value"), VALUES)
def test_a_variable_is_read_as_its_setting_s_type(variable: str, text: str, value: object) -> None:
    name = next(setting.name for setting in catalog() if setting.env == variable)
    settings = load(environ={variable: text})
    assert attrgetter(name)(settings) == value
    assert settings.origin(name) == ("environment", variable)


def test_every_default_of_the_catalog_can_be_written_in_a_file_and_read_back() -> None:
    for setting in catalog():
        if setting.default is not None:
            value = render_duration(setting.default) if isinstance(setting.default, timedelta) else setting.default
            assert attrgetter(setting.name)(load(environ={}, options={setting.name: value})) == setting.default


def test_the_tree_is_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.claims.batch = 5
    with pytest.raises(ValidationError, match="frozen"):
        settings.data = Path("x")


def test_variables_that_are_not_settings_and_not_ours_are_left_alone() -> None:
    assert load(environ={"HOLDFAST_CONFORMANCE": "/x", "PATH": "/bin", "holdfast_data": "x"}) == Settings()


# --- the seeds' names


@pytest.mark.parametrize("prefix", ["", "HOLDFAST_"])
@pytest.mark.parametrize(("name", "seed"), SEED_NAMES.items())
def test_the_seeds_names_are_understood(prefix: str, name: str, seed: str) -> None:
    before = attrgetter(name)(Settings())
    text, value = ("7", 7) if name == "flush.pages" else ("false", False)
    # Alone, smart scheduling cannot be off.
    environ = {prefix + seed: text, **({"ENABLE_CLAIM_PROTOCOL": "false"} if "SMART" in seed else {})}
    settings = load(environ=environ)
    assert before != value
    assert attrgetter(name)(settings) == value
    assert settings.origin(name) == ("environment", prefix + seed)


@pytest.mark.parametrize(
    ("proper", "alias", "agree"),
    [("true", "1", True), ("off", "False", True), ("true", "false", False), ("true", "perhaps", False)],
)
def test_an_alias_must_agree_with_the_proper_name(proper: str, alias: str, agree: bool) -> None:
    environ = {"HOLDFAST_ROLLOUT_REFRESH_MODE": proper, "ENABLE_REFRESH_MODE": alias}
    if agree:
        assert load(environ=environ).rollout.refresh_mode is (proper == "true")
    else:
        (sentence,) = complaints(environ=environ)
        assert "HOLDFAST_ROLLOUT_REFRESH_MODE and ENABLE_REFRESH_MODE" in sentence
        assert "different values" in sentence


def test_claims_require_scheduling() -> None:
    assert complaints(environ={"ENABLE_SMART_SCHEDULING": "false"}) == [CLAIMS_RULE]
    assert complaints(toml="[rollout]\nsmart_scheduling = false\n") == [CLAIMS_RULE]
    both_off = load(options={"rollout": {"smart_scheduling": False, "claim_protocol": False}}, environ={})
    assert not both_off.rollout.claim_protocol


@pytest.mark.parametrize(("timeout", "heartbeat"), [("70s", "30s"), ("30s", "70s"), ("10m", "30s")])
def test_a_request_must_end_before_a_silent_workers_domains_are_taken_over(timeout: str, heartbeat: str) -> None:
    (words,) = complaints(environ={"HOLDFAST_FETCH_TIMEOUT": timeout, "HOLDFAST_WORKER_HEARTBEAT": heartbeat})
    assert words.startswith("fetch.timeout and worker.heartbeat must be less than 100 s together, not ")
    assert load(environ={"HOLDFAST_FETCH_TIMEOUT": "69s"}).fetch.timeout == timedelta(seconds=69)


# --- complaints

UNKNOWN_IN_FILE = [
    ("dta = 'x'", "'dta'", "data"),
    ("[claims]\nleese = 5", "'claims.leese'", "claims.lease"),
    ("[clams]\nlease = 5", "'clams.lease'", "claims.lease"),
    ("lease = 5", "'lease'", "claims.lease"),
    ("[data]\nx = 1", "'data.x'", "data"),
    ("[zzz]", "'zzz'", None),
    ("[zzz.zzz.zzz]\na = 1", "'zzz.zzz'", None),
    ('"a\\nb" = 1', "'a\\nb'", None),
    ("a." * 3000 + "b = 1", "'a.a'", None),
]
UNKNOWN_IN_ENVIRONMENT = [
    ("HOLDFAST_CLAIM_LEASE", "HOLDFAST_CLAIMS_LEASE"),
    ("HOLDFAST_LEASE", "HOLDFAST_CLAIMS_LEASE"),
    ("HOLDFAST_ENABLE_CLAIM_PROTOCL", "HOLDFAST_ROLLOUT_CLAIM_PROTOCOL"),
    ("HOLDFAST_ZZZ", None),
    ("HOLDFAST_", None),
]
UNKNOWN_OPTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"dat": None}, "'dat'", "data"),
    ({"claims": {"btch": 1}}, "'claims.btch'", "claims.batch"),
]


def guess(name: str | None) -> str:
    return f"; did you mean {name}?" if name else "."


@pytest.mark.parametrize(("toml", "name", "meant"), UNKNOWN_IN_FILE)
def test_an_unknown_key_of_the_file_is_an_error(toml: str, name: str, meant: str | None) -> None:
    assert complaints(toml) == [f"{name} (in holdfast.toml) is not a setting{guess(meant)}"]


@pytest.mark.parametrize(("name", "meant"), UNKNOWN_IN_ENVIRONMENT)
@pytest.mark.parametrize("value", ["1", ""])
def test_an_unknown_variable_is_an_error(name: str, meant: str | None, value: str) -> None:
    sentence = f"The environment variable {name!r} is not a setting{guess(meant)}"
    assert complaints(environ={name: value}) == [sentence]


@pytest.mark.parametrize(("options", "name", "meant"), UNKNOWN_OPTIONS)
def test_an_unknown_option_is_an_error(options: dict[str, Any], name: str, meant: str) -> None:
    assert complaints(options=options) == [f"{name} (given as an option) is not a setting{guess(meant)}"]


def test_a_group_is_not_a_setting() -> None:
    assert complaints("claims = 5") == ["claims (in holdfast.toml) is a group of settings, not a setting."]


DURATION = 'must be a duration: seconds, or a text such as "45s", "1h30m" or "7 days"'
WRONG: list[tuple[str, str, str]] = [
    ("claims.lease", "4", "must be at least 5 seconds, not 4s"),
    ("claims.lease", "true", f"{DURATION}, not True"),
    ("claims.lease", "1979-05-27", f"{DURATION}, not datetime.date(1979, 5, 27)"),
    ("claims.lease", "{a = 1}", f"{DURATION}, not {{'a': 1}}"),
    ("claims.batch", "0", "must be at least 1, not 0"),
    ("claims.batch", "1001", "must be at most 1000, not 1001"),
    ("claims.batch", "true", "must be a number, not True"),
    ("claims.batch", "1.5", "must be a whole number, not 1.5"),
    ("claims.batch", "'many'", "must be a whole number, not 'many'"),
    ("claims.batch", "0x" + "F" * 5000, "must be at most 1000, not a number of that size"),
    ("store.connect_timeout", "'0s'", "must be at least 1 second, not 0s"),
    ("cooldown.forbidden", "'soon'", f"{DURATION}, not 'soon'"),
    ("cooldown.forbidden", "-1", "must be at least 0s, not -1"),
    ("cooldown.forbidden", "inf", "must be at most 36500d, not inf"),
    ("cooldown.jitter", "0.6", "must be at most 0.5, not 0.6"),
    ("cooldown.jitter", "nan", "must be at most 0.5, not nan"),
    ("cooldown.jitter", "'x'", "must be a number, not 'x'"),
    ("domains.registrable", "'perhaps'", "must be true or false, not 'perhaps'"),
    ("domains.parser", "'two words'", "must be one word, not 'two words'"),
    ("domains.user_agent", '"a\\r\\nCookie: b"', "must be plain ASCII text on one line, not 'a\\r\\nCookie: b'"),
    ("domains.user_agent", "5", "must be a text, not 5"),
    ("data", "5", "must be a path, not 5"),
    ("retention.format", "'xml'", "must be 'parquet' or 'csv', not 'xml'."),
    (
        "retention.schedule",
        "'0 25 * * *'",
        "must be a schedule: '0 25 * * *' is not a cron expression: bad hour. The fields",
    ),
    ("retention.schedule", "'0 3'", "must be a schedule: "),
    ("data", "''", "must be the path of a folder, not ''"),
    ("data", "'~nobody-of-that-name/x'", "begins with ~, but that home folder is not known"),
    ("urls.tracking_parameters", "5", "must be a list of texts, not 5"),
    ("urls.tracking_parameters", "[1]", "must be a text, not 1"),
    ("urls.tracking_parameters", "['*a']", "must be names of query parameters, each perhaps with one * at its end"),
    ("urls.tracking_parameters", "['']", "must be names of query parameters, each perhaps with one * at its end"),
]


@pytest.mark.parametrize(("name", "toml", "words"), WRONG)
def test_a_wrong_value_is_a_sentence_with_name_place_and_value(name: str, toml: str, words: str) -> None:
    (sentence,) = complaints(f"{name} = {toml}\n")
    assert sentence.startswith(f"{name} (in holdfast.toml) {words}")
    assert sentence.endswith(".")


def test_a_long_value_is_shortened() -> None:
    (sentence,) = complaints(environ={"HOLDFAST_CLAIMS_BATCH": "x" * 10_000})
    assert sentence.startswith("HOLDFAST_CLAIMS_BATCH must be a whole number, not 'xxx")
    assert len(sentence) < 150


def test_all_problems_come_at_once() -> None:
    found = complaints(
        toml="zzz = 1\n[claims]\nbatch = 0\n",
        environ={"HOLDFAST_ZZZ": "1", "HOLDFAST_COOLDOWN_JITTER": "2", "ENABLE_SMART_SCHEDULING": "no"},
        options={"claims": {"lease": "1s"}},
    )
    assert found == [
        "'zzz' (in holdfast.toml) is not a setting.",
        "The environment variable 'HOLDFAST_ZZZ' is not a setting.",
        "claims.lease (given as an option) must be at least 5 seconds, not 1s.",
        "claims.batch (in holdfast.toml) must be at least 1, not 0.",
        "HOLDFAST_COOLDOWN_JITTER must be at most 0.5, not '2'.",
        CLAIMS_RULE,
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"data = \n", "is not valid TOML: Invalid value (at line 1, column 8)"),
        (b"data = 'x'\ndata = 'y'\n", "is not valid TOML: Cannot overwrite a value (at line 2"),
        (b"data = '\xff'\n", "is not UTF-8 text"),
        (b"claims.batch = " + b"9" * 5000, "is not valid TOML: Exceeds the limit"),
        (b"data = " + b"[" * 5000, "is not valid TOML: "),
    ],
)
def test_a_broken_file_is_one_sentence(content: bytes, words: str) -> None:
    Path("holdfast.toml").write_bytes(content)
    (sentence,) = complaints()
    assert sentence.startswith(f"The settings file holdfast.toml {words}")


def test_a_file_that_cannot_be_read_is_one_sentence(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"^There is no settings file gone\.toml\.$"):
        load(file=Path("gone.toml"), environ={})
    with pytest.raises(SettingsError, match=r"cannot be read: Is a directory\.$"):
        load(file=folder, environ={})


# --- secrets


@pytest.mark.parametrize(
    "toml",
    [
        "database_url = 'mysql://u:geheim@h/db'",
        "database_url = ['postgresql://u:geheim@h/db']",
        "database_url = {url = 'postgresql://u:geheim@h/db'}",
        "database_url = postgresql://u:geheim@h/db",
        "databaseurl = 'postgresql://u:geheim@h/db'",
        "[store]\ndatabase_url = 'postgresql://u:geheim@h/db'",
        "database_url = 'postgresql://u:geheim@h/db'\n[claims]\nbatch = 0",
        "database_url = 'postgresql://u:geheim@h/db'\n[rollout]\nsmart_scheduling = false",
    ],
)
def test_no_complaint_repeats_a_secret(toml: str) -> None:
    assert "geheim" not in "\n".join(complaints(toml))


def test_a_tree_built_by_hand_repeats_no_secret_either() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"database_url": ["postgresql://u:geheim@h/db"], "zzz": "geheim"})
    assert "geheim" not in str(caught.value)


# --- durations


# fmt: off
SECONDS: list[tuple[object, float]] = [
    (0, 0), (90, 90), (0.25, 0.25), ("90", 90), (" 1.5 ", 1.5), (timedelta(seconds=3), 3),
    ("250ms", 0.25), ("45s", 45), ("12h", 43_200), ("30d", 2_592_000), ("7 days", 604_800), ("1 Week", 604_800),
    ("1h30m", 5400), ("1 hour 30 min", 5400), ("1.5h", 5400),
]
NO_DURATIONS = [
    "", "d", "5x", "1h30", "1h 30", "h1", "1,5h", "-1s", "-5", -1, "1e3", True, None, [], float("nan"), "1" * 400 + "d",
]
SHORT = [
    (0, "0s"), (60, "1m"), (90, "1m30s"), (5400, "1h30m"), (604_800, "7d"), (0.25, "0.25s"), (86_401, "1d1s"),
]
# fmt: on


@pytest.mark.parametrize(("value", "seconds"), SECONDS)
def test_durations_as_people_write_them(value: object, seconds: float) -> None:
    assert parse(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", NO_DURATIONS)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be "):
        parse(value)


@pytest.mark.parametrize(("seconds", "text"), SHORT)
def test_durations_are_rendered_short(seconds: float, text: str) -> None:
    assert render_duration(timedelta(seconds=seconds)) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=MAX_DURATION))
def test_a_rendered_duration_reads_back_the_same(duration: timedelta) -> None:
    assert parse(render_duration(duration)) == duration


# --- neighbours


def test_the_url_settings_are_the_rules_of_the_model() -> None:
    """They cannot import each other, so this keeps names and defaults together."""
    ours, theirs = UrlRules(**Urls().model_dump()), UrlRules()
    for field in Urls.model_fields:
        mine, other = getattr(ours, field), getattr(theirs, field)
        assert str(mine).lower() == str(other).lower(), field  # names are compared in any case


def test_importing_settings_stays_cheap() -> None:
    """Every command pays for it: pydantic_settings alone would add half again, so not even that is imported."""
    script = "import sys; had = set(sys.modules); import holdfast.settings; print(*set(sys.modules) - had)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"asyncio", "difflib", "psycopg", "pydantic_settings", "rich", "tomllib", "typer"}
    assert heavy.isdisjoint(run.stdout.split())


@pytest.mark.parametrize("group", ["crawl", "fetch"])
def test_the_contact_has_its_former_name_too(group: str) -> None:
    Path("holdfast.toml").write_text(f'[{group}]\ncontact = "ann@a.example"\n', encoding="utf-8")
    settings = load(environ={})
    assert settings.crawl.contact == "ann@a.example"
    assert settings.origin("crawl.contact").place == f"{group}.contact (in holdfast.toml)"
    variable = f"HOLDFAST_{group.upper()}_CONTACT"
    assert load(environ={variable: "bob@b.example"}).crawl.contact == "bob@b.example"


def test_both_names_of_the_contact_must_agree() -> None:
    both = '[crawl]\ncontact = "ann@a.example"\n[fetch]\ncontact = "{}@a.example"\n'
    (sentence,) = complaints(both.format("bob"))
    assert sentence == (
        "crawl.contact and fetch.contact (in holdfast.toml) set the same thing to different values; keep one of them."
    )
    Path("holdfast.toml").write_text(both.format("ann"), encoding="utf-8")
    assert load(environ={}).crawl.contact == "ann@a.example"


def test_a_setting_that_is_written_in_two_ways_must_agree() -> None:
    (sentence,) = complaints('"crawl.max_depth" = 3\n[crawl]\nmax_depth = 4\n')
    assert sentence.startswith('crawl.max_depth and "crawl.max_depth" (in holdfast.toml) set the same thing')
