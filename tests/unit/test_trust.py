"""Settings files and parsers that another user wrote, or could: not used. A person's own files under any usual umask: used."""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import SettingsError
from holdfast.parse.plugin_loader import InvalidParser
from holdfast.parse.plugin_loader import load as load_parser
from holdfast.parse.plugin_registry import ParserSource, SourceKind, discover
from holdfast.settings import load

STRANGER = 65_534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a settings file of our own."""
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "holdfast.toml").write_text("[claims]\nlease = '7m'\n")
    (folder / "holdfast.toml").chmod(0o644)
    monkeypatch.chdir(folder)
    return folder


def lease() -> float:
    return load(environ={}).claims.lease.total_seconds()


def refused(file: Path | None = None) -> str:
    with pytest.raises(SettingsError) as found:
        load(file=file, environ={})
    assert "\n" not in str(found.value)
    return str(found.value)


def open_to_a_group(place: Path) -> None:
    os.chown(place / "holdfast.toml", 0, 1)
    (place / "holdfast.toml").chmod(0o664)


def in_a_shared_folder(place: Path) -> None:
    """As in /tmp."""
    place.chmod(0o1777)
    os.chown(place / "holdfast.toml", STRANGER, 0)


def linked_by_a_stranger(place: Path) -> None:
    """The target is ours; which one it is was a stranger's choice."""
    (place / "holdfast.toml").rename(place / "other.toml")
    (place / "holdfast.toml").symlink_to(place / "other.toml")
    os.chown(place / "holdfast.toml", STRANGER, STRANGER, follow_symlinks=False)


def linked_into_a_strangers_folder(place: Path) -> None:
    (place / "theirs").mkdir()
    (place / "holdfast.toml").rename(place / "theirs" / "other.toml")
    (place / "holdfast.toml").symlink_to("theirs/other.toml")
    os.chown(place / "theirs", STRANGER, STRANGER)


FORGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "of another user": (lambda at: os.chown(at / "holdfast.toml", STRANGER, 0), "belongs to user nobody (mode 0644)"),
    "open to all": (lambda at: (at / "holdfast.toml").chmod(0o666), "can be written by every user (mode 0666"),
    "open to a group": (
        open_to_a_group,
        f"can be written by group {grp.getgrgid(1).gr_name} (mode 0664",
    ),
    "in a folder of another user": (lambda at: os.chown(at, STRANGER, STRANGER), "project belongs to user nobody"),
    "in a folder open to all": (lambda at: at.chmod(0o777), "project can be written by every user (mode 0777"),
    "in a folder open to all further up": (
        lambda at: at.parent.chmod(0o777),
        "can be written by every user (mode 0777",
    ),
    "linked by another user": (linked_by_a_stranger, "holdfast.toml belongs to user nobody"),
    "linked into another's folder": (linked_into_a_strangers_folder, "theirs belongs to user nobody"),
    "in a shared folder, of another user": (
        in_a_shared_folder,
        "belongs to user nobody (mode 0644)",
    ),
}


@root_only
@pytest.mark.parametrize("how", FORGED)
def test_a_found_settings_file_that_another_user_could_write(place: Path, how: str) -> None:
    forge, words = FORGED[how]
    forge(place)
    answer = refused()
    assert words in answer, answer
    cure = (
        "`chmod o-w holdfast.toml`" if how == "open to all" else "--config"
    )  # which refuses a file that is open to all, too
    assert cure in answer, answer


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o644), (0o700, 0o600), (0o1777, 0o644), (0o775, 0o664)])
def test_our_own_settings_file(place: Path, folder: int, file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last pair is what a umask of 002 makes, with a private group."""
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.getpwuid(os.geteuid())])
    os.chown(place, -1, pwd.getpwuid(os.geteuid()).pw_gid)
    place.chmod(folder)
    (place / "holdfast.toml").chmod(file)
    assert lease() == 420


def test_a_group_with_another_member_is_not_private(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "holdfast.toml").chmod(0o664)
    gid = (place / "holdfast.toml").stat().st_gid
    own = grp.getgrgid(gid)
    crowded = grp.struct_group((own.gr_name, own.gr_passwd, own.gr_gid, ["somebody"]))
    monkeypatch.setattr(grp, "getgrgid", lambda _: crowded)
    assert f"can be written by group {own.gr_name}" in refused()


@root_only
def test_a_settings_file_that_a_person_names(place: Path) -> None:
    file = place / "holdfast.toml"
    os.chown(place, STRANGER, STRANGER)
    os.chown(file, STRANGER, STRANGER)
    file.chmod(0o664)
    assert load(file=file, environ={}).claims.lease.total_seconds() == 420
    file.chmod(0o666)
    assert f"can be written by every user (mode 0666); `chmod o-w {file}` ends that" in refused(file)
    assert load(file=Path("/dev/null"), environ={}).claims.lease.total_seconds() == 1800, "open to all, and no file"


@root_only
def test_a_folder_of_parsers_that_another_user_could_write(place: Path) -> None:
    (place / "plug").mkdir()
    (place / "holdfast.toml").write_text(f"[parsing]\nfolder = '{place}/plug'\n")
    assert load(environ={}).parsing.folder == place / "plug"
    os.chown(place / "plug", STRANGER, STRANGER)
    assert "plug belongs to user nobody" in refused()


PARSER = "version = '1'\ndef parse(document): return {}\n"


@root_only
@pytest.mark.parametrize("how", ["group", "stranger", "folder", "link"])
def test_a_parser_that_another_user_could_write(place: Path, how: str) -> None:
    file = place / "shop.py"
    file.write_text(PARSER)
    source = ParserSource("shop", SourceKind.FILE, str(file))
    assert load_parser(source).version == "1"
    if how == "group":
        os.chown(file, 0, 1)
        file.chmod(0o664)
    elif how == "stranger":
        os.chown(file, STRANGER, 0)
    elif how == "folder":
        os.chown(place, 0, 1)
        place.chmod(0o775)
    else:
        file.rename(place / "real")
        file.symlink_to(place / "real")
        os.chown(file, STRANGER, 0, follow_symlinks=False)
    assert not isinstance(discover(place).find("shop"), ParserSource)
    with pytest.raises(InvalidParser, match=r"belongs to user nobody|can be written by group"):
        load_parser(source)


def test_a_helper_beside_a_parser_that_every_user_can_write(place: Path) -> None:
    (place / "open_helper.py").write_text("")
    (place / "shop.py").write_text("import open_helper\n" + PARSER)
    (place / "open_helper.py").chmod(0o666)
    with pytest.raises(ImportError, match=r"open_helper\.py can be written by every user"):
        load_parser(ParserSource("shop", SourceKind.FILE, str(place / "shop.py")))
    (place / "open_helper.py").chmod(0o644)
    assert load_parser(ParserSource("shop", SourceKind.FILE, str(place / "shop.py"))).version == "1"
