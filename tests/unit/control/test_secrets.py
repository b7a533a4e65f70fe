"""The secret box: keys that are made once, replaced one by one, and missed by name."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.secret_box import SecretBox
from holdfast.errors import SettingsError
from holdfast.settings import Settings, load

PASSWORD = "correct horse; battery@staple:ü"
OLD, NEW, OTHER = SecretBox.new_key(), SecretBox.new_key(), SecretBox.new_key()


def safe(folder: Path, *keys: str) -> SecretBox:
    given = {"HOLDFAST_SECRET_KEY": ", ".join(keys)} if keys else {}
    return SecretBox.of(load(environ={"HOLDFAST_DATA": str(folder), **given}))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_what_is_sealed_can_be_opened(password: str) -> None:
    kept = safe(Path("nowhere"), NEW)
    token = kept.seal(password)
    assert kept.open(token) == password
    assert kept.seal(password) != token, "nobody sees that two are the same"


def test_one_is_made_if_there_is_none(tmp_path: Path) -> None:
    kept = safe(tmp_path / "new" / "data")
    assert kept.keys() == ()
    token = kept.seal(PASSWORD)
    assert kept.file.stat().st_mode & 0o777 == 0o600
    assert list(kept.data.iterdir()) == [kept.file], "nothing half-made stays"
    assert safe(tmp_path / "new" / "data").open(token) == PASSWORD
    assert kept.keys() == kept.ensure_keys()
    assert kept.place == str(kept.file)


def test_all_who_seal_at_once_use_the_same(tmp_path: Path) -> None:
    start, tokens = threading.Barrier(8), list[str]()

    def seal() -> None:
        start.wait()
        tokens.append(safe(tmp_path).seal(PASSWORD))

    threads = [threading.Thread(target=seal) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [safe(tmp_path).open(token) for token in tokens] == [PASSWORD] * 8
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


def test_keys_are_replaced_one_by_one(tmp_path: Path) -> None:
    before, between, after = safe(tmp_path, OLD), safe(tmp_path, NEW, OLD), safe(tmp_path, NEW)
    token = before.seal(PASSWORD)
    assert between.open(token) == PASSWORD
    assert before.is_newest(token)
    assert not between.is_newest(token)
    again = between.seal(between.open(token))
    assert between.is_newest(again)
    assert after.open(again) == PASSWORD
    assert not list(tmp_path.iterdir()), "no file is made where keys are set"


def test_the_file_may_hold_several_as_well(tmp_path: Path) -> None:
    token = safe(tmp_path).seal(PASSWORD)
    file = safe(tmp_path).file
    file.write_text(f"{NEW},{file.read_text()}")
    assert safe(tmp_path).open(token) == PASSWORD
    assert not safe(tmp_path).is_newest(token)


@pytest.mark.parametrize("keys", [(NEW,), (NEW, OTHER)], ids=["one key", "two keys"])
def test_a_wrong_key_is_a_sentence_that_says_what_to_do(tmp_path: Path, keys: tuple[str, ...]) -> None:
    token = safe(tmp_path, OLD).seal(PASSWORD)
    with pytest.raises(SettingsError) as refused:
        safe(tmp_path, *keys).open(token)
    assert str(refused.value) == (
        "The secret was sealed with a key that is not in HOLDFAST_SECRET_KEY: set HOLDFAST_SECRET_KEY to the new key and, behind a "
        "comma, the one that it was sealed with, or give it again (`holdfast proxies edit PROXY --password-stdin`, "
        "`crawl --header …`, `domains set DOMAIN header=…`)."
    )
    assert not safe(tmp_path, *keys).is_newest(token)


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    safe(tmp_path).ensure_keys()
    with pytest.raises(SettingsError, match=r"not in .*secret\.key: set HOLDFAST_SECRET_KEY"):
        safe(tmp_path).open(safe(tmp_path, OLD).seal(PASSWORD))


def test_opening_makes_no_key(tmp_path: Path) -> None:
    token = safe(tmp_path, OLD).seal(PASSWORD)
    with pytest.raises(SettingsError, match=r"^There is no key to open the secret with: put .*secret\.key back, "):
        safe(tmp_path).open(token)
    assert not safe(tmp_path).is_newest(token)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "token", ["", "rubbish", "gAAAAA", "ü", "=" * 100], ids=["empty", "rubbish", "cut", "umlaut", "full"]
)
def test_what_is_no_token_is_not_opened_nor_repeated(tmp_path: Path, token: str) -> None:
    with pytest.raises(SettingsError) as refused:
        safe(tmp_path, NEW).open(token)
    assert not token or token not in str(refused.value)


def test_a_token_that_was_touched_is_not_opened(tmp_path: Path) -> None:
    kept = safe(tmp_path, NEW)
    token = kept.seal(PASSWORD)
    other = token[:30] + ("A" if token[30] != "A" else "B") + token[31:]
    with pytest.raises(SettingsError):
        kept.open(other)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    kept = safe(tmp_path)
    token = kept.seal(PASSWORD)
    kept.file.chmod(0o644)
    for deed in (kept.open, kept.seal):
        with pytest.raises(SettingsError, match=r"may be read by others: make it yours alone with `chmod 600`\.$"):
            deed(token)


@pytest.mark.parametrize(
    "text", ["", "short\n", f"{OLD[:-1]}\n", f"{OLD}, hunter2\n"], ids=["empty", "short", "cut", "bad"]
)
def test_a_file_without_a_good_key_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    kept = safe(tmp_path)
    kept.file.write_text(text)
    kept.file.chmod(0o600)
    with pytest.raises(
        SettingsError, match=r"secret\.key must be a key that `holdfast proxies new-key` has made"
    ) as refused:
        kept.seal(PASSWORD)
    assert not [word for word in text.replace(",", " ").split() if word in str(refused.value)]
    assert kept.file.read_text() == text


def test_nothing_that_is_shown_holds_a_key(tmp_path: Path) -> None:
    settings = load(environ={"HOLDFAST_SECRET_KEY": f"{NEW},{OLD}", "HOLDFAST_DATA": str(tmp_path)})
    kept = SecretBox.of(settings)
    assert not [key for key in (NEW, OLD) if key in repr(kept) + repr(settings) + str(settings)]
    with pytest.raises(SettingsError) as refused:
        load(environ={"HOLDFAST_SECRET_KEY": NEW[:-2]})
    assert NEW[:-2] not in str(refused.value)
    assert SecretBox.of(Settings(data=tmp_path)).configured is None


def test_who_seals_nothing_does_not_load_it() -> None:
    """Nor the web: `holdfast db --help`, and looking at proxies, are quick."""
    modules = "holdfast.cli.db, holdfast.cli.explain, holdfast.proxies.cli.proxies"
    look = f"import sys, {modules}; print([m for m in ('cryptography', 'pycurl') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
