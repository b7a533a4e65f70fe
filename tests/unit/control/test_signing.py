"""The secret of webhooks: made once, for its owner's eyes, and never a weak one."""

import threading
from pathlib import Path

import pytest

from holdfast.errors import SettingsError
from holdfast.settings import Settings, load
from holdfast.webhooks.signing import Signing

GIVEN = "a-secret-of-the-environment"


def test_the_setting_comes_before_the_file(tmp_path: Path) -> None:
    made = Signing(tmp_path).ensure()
    settings = load(
        environ={"HOLDFAST_WEBHOOK_SECRET": f"{GIVEN}, another-one-as-long", "HOLDFAST_DATA": str(tmp_path)}
    )
    signing = Signing.of(settings)
    assert signing.known() == signing.ensure() == (GIVEN, "another-one-as-long")
    assert signing.origin == "HOLDFAST_WEBHOOK_SECRET"
    assert GIVEN not in repr(signing) + repr(settings)
    assert Signing.of(Settings(data=tmp_path)).known() == made


def test_one_is_made_if_there_is_none(tmp_path: Path) -> None:
    signing = Signing(tmp_path / "new" / "data")
    assert signing.known() == ()
    (secret,) = signing.ensure()
    assert len(secret) >= 40
    assert signing.ensure() == signing.known() == (secret,)
    assert signing.file.stat().st_mode & 0o777 == 0o600
    assert list(signing.data.iterdir()) == [signing.file], "nothing half-made stays"
    assert Signing(tmp_path / "other").ensure() != (secret,)


def test_all_who_ask_at_once_are_given_the_same(tmp_path: Path) -> None:
    start, found = threading.Barrier(8), set()

    def ask() -> None:
        start.wait()
        found.add(Signing(tmp_path).ensure())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["webhook.secret"]


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    signing = Signing(tmp_path)
    signing.ensure()
    signing.file.chmod(0o640)
    with pytest.raises(SettingsError, match=r"may be read by others: make it yours alone with `chmod 600`\.$"):
        signing.ensure()


@pytest.mark.parametrize("text", ["", "short\n", "has spaces within it, really\n", "ünlücky-but-long-enough\n"])
def test_a_file_without_a_good_secret_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    signing = Signing(tmp_path)
    signing.file.write_text(text)
    signing.file.chmod(0o600)
    with pytest.raises(SettingsError, match=r"must be 16 to 200 ASCII characters") as refused:
        signing.ensure()
    assert text.strip() not in str(refused.value) or not text.strip()
    assert signing.file.read_text() == text


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("somebody-s-long-private-text\n")
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / "webhook.secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match=r"webhook\.secret cannot be read: "):
        Signing(tmp_path).known()


def test_a_place_where_nothing_can_be_kept_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"cannot be (read|made): Not a directory\.$"):
        Signing(tmp_path / "file").ensure()


def test_a_setting_that_is_easy_to_guess_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError) as refused:
        load(environ={"HOLDFAST_WEBHOOK_SECRET": "hunter2"})
    assert str(refused.value) == (
        "HOLDFAST_WEBHOOK_SECRET must be 16 to 200 ASCII characters without spaces, or several such texts with commas between."
    )
