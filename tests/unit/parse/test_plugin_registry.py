"""Discovery of parsers: names, precedence, and the reasons for those that cannot be used."""

import sys
from pathlib import Path

import pytest

from holdfast.model.parse_result import FailureKind, ParseFailed
from holdfast.parse.plugin_loader import InvalidParser, load, validate_parser
from holdfast.parse.plugin_registry import (
    BUILT_IN,
    ENTRY_POINT_GROUP,
    ParserSource,
    PluginRegistry,
    SourceKind,
    UnusableParser,
    discover,
)


def installed(folder: Path, package: str, points: str) -> None:
    """Write the metadata of an installed package with those entry points."""
    metadata = folder / f"{package}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{points}\n")


def test_the_built_in_parsers_are_there() -> None:
    registry = discover()
    assert {name for name, source in registry.sources.items() if source.kind is SourceKind.BUILT_IN} == {
        "generic",
        "main-text",
        "markdown",
        "product",
    }
    assert {source.isolation_group for source in registry.sources.values() if source.kind is SourceKind.BUILT_IN} == {
        ""
    }


def test_files_of_a_folder_are_parsers_and_none_is_imported(tmp_path: Path) -> None:
    for name in ("amazon.py", "my-shop.example.py", "_shared.py", ".hidden.py", "notes.txt"):
        (tmp_path / name).write_text("raise SystemExit")
    (tmp_path / "package").mkdir()
    registry = discover(tmp_path)
    files = {source.name: source for source in registry.sources.values() if source.kind is SourceKind.FILE}
    assert set(files) == {"amazon", "my-shop.example"}
    assert files["amazon"].target == str(tmp_path / "amazon.py")
    assert files["amazon"].isolation_group == "amazon"
    assert registry.unusable == ()


def test_names_that_cannot_be_are_told(tmp_path: Path) -> None:
    for name in ("Amazon.py", "two words.py", "generic.py", "x" * 101 + ".py"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder.py").mkdir()
    registry = discover(tmp_path)
    assert set(registry.sources) == set(BUILT_IN)
    reasons = {broken.name: broken.reason for broken in registry.unusable}
    assert set(reasons) == {"Amazon", "two words", "generic", "x" * 100, "folder"}
    assert reasons["generic"] == "the file generic.py is hidden by the built-in parser of that name"
    assert reasons["Amazon"].startswith("the file Amazon.py has no name for a parser")
    assert reasons["folder"] == "the file folder.py is not a regular file"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    registry = discover(tmp_path / "gone")
    assert registry.unusable == (
        UnusableParser(str(tmp_path / "gone"), "the folder of parsers cannot be read (No such file or directory)"),
    )
    assert set(registry.sources) == set(BUILT_IN)


def test_packages_are_found_and_do_not_stop_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
    installed(first, "alpha", "shop = alpha.shop\nboth = alpha\nBad = alpha\nproduct = alpha")
    installed(first, "beta", "both = beta:Parser")
    installed(first, "torn", "what is this")
    installed(second, "alpha", "shop = newer.shop")
    (second / "nameless-1.dist-info").mkdir()
    files = tmp_path / "files"
    files.mkdir()
    (files / "mine.py").write_text("")
    registry = discover(files)
    assert registry.sources["shop"].target == "newer.shop"
    assert registry.sources["both"].target == "beta:Parser"
    assert registry.sources["mine"].kind is SourceKind.FILE
    assert "Bad" not in registry.sources
    assert any("metadata" in broken.reason for broken in registry.unusable)


def test_two_packages_with_one_name_are_both_refused_and_a_file_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    installed(tmp_path, "alpha", "both = alpha\nmine = alpha\nBad Name = alpha\nproduct = alpha")
    installed(tmp_path, "beta", "both = beta")
    (tmp_path / "mine.py").write_text("")
    registry = discover(tmp_path)
    reasons = {broken.name: broken.reason for broken in registry.unusable}
    assert "of alpha and beta; none of them is used" in reasons["both"].replace("beta and alpha", "alpha and beta")
    assert reasons["mine"] == "the parser of the package alpha is hidden by the file mine.py"
    assert reasons["product"] == "the parser of the package alpha is hidden by the built-in parser of that name"
    assert "a parser of the package alpha has no name for a parser" in reasons["Bad Name"]
    assert registry.sources["mine"].kind is SourceKind.FILE
    found = registry.find("both")
    assert isinstance(found, ParseFailed)
    assert found.kind is FailureKind.BROKEN_PARSER


def test_an_unknown_parser_is_told_with_what_there_is() -> None:
    registry = PluginRegistry(discover().sources.values())
    failed = registry.find("ama\nzon")
    assert isinstance(failed, ParseFailed)
    assert failed.kind is FailureKind.UNKNOWN_PARSER
    assert failed.reason.startswith("no parser is called 'ama zon'; there are: generic, main-text, markdown, product")


class Right:
    """A parser as a class."""

    name = "right"
    version = "2"

    def parse(self, document: object) -> object:
        return document


class Nameless(Right):
    name = ""


class Old(Right):
    version = ""


class Numbered(Right):
    version = 2  # type: ignore[assignment]


def test_a_class_and_an_object_are_parsers() -> None:
    for candidate in (Right, Right()):
        loaded = validate_parser("right", candidate)
        assert (loaded.name, loaded.version, loaded.parse("x")) == ("right", "2", "x")


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (object(), "no function parse"),
        (Nameless, "calls itself ''"),
        (Old, "no version"),
        (Numbered, "no version"),
        (None, "no function parse"),
    ],
)
def test_what_is_no_parser(candidate: object, words: str) -> None:
    with pytest.raises(InvalidParser, match=words):
        validate_parser("right", candidate)


def test_a_file_that_another_user_could_replace_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("version = '1'\ndef parse(document): return {}\n", encoding="utf-8")
    assert isinstance(discover(tmp_path).find("shop"), ParserSource)
    tmp_path.chmod(0o777)
    for found in (discover(tmp_path), discover(None, file)):
        refused = found.find("shop")
        assert isinstance(refused, ParseFailed)
        assert f"{tmp_path} can be written by every user (mode 0777" in refused.reason
    tmp_path.chmod(0o1777)  # as /tmp is: others can put files there, but not replace this one
    assert isinstance(discover(None, file).find("shop"), ParserSource)
    file.chmod(0o666)
    assert isinstance(discover(None, file).find("shop"), ParseFailed)


def test_nothing_is_imported_from_a_folder_where_every_user_can_put_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_helper.py").write_text("", encoding="utf-8")
    file = tmp_path / "shop.py"
    file.write_text("import planted_helper\nversion = '1'\ndef parse(document): return {}\n", encoding="utf-8")
    monkeypatch.setattr("sys.meta_path", list(sys.meta_path))
    tmp_path.chmod(0o1777)
    with pytest.raises(ModuleNotFoundError, match="planted_helper"):
        load(ParserSource("shop", SourceKind.FILE, str(file)))
    tmp_path.chmod(0o755)
    assert load(ParserSource("shop", SourceKind.FILE, str(file))).version == "1"
