"""robots.txt against Google's specification tests; the cases stay in their folder, which nobody here wrote."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.politeness.robots_txt import Robots

FOLDER = Path(os.environ.get("HOLDFAST_CONFORMANCE") or Path(__file__).parents[2].parent / "shared" / "conformance")

pytestmark = pytest.mark.skipif(
    not (FOLDER / "robots").is_dir(),
    reason=f"there are no robots.txt cases in {FOLDER}; set HOLDFAST_CONFORMANCE to their folder",
)

ALWAYS_ALLOWED = "/robots.txt"
"""RFC 9309 allows it implicitly, the cases do not: the one exception."""

TOKEN = re.compile(r'#[^\n]*|"((?:[^"\\]|\\.)*)"|(\w+)')
ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)")
MEANS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class Case(NamedTuple):
    file: str
    robots: bytes
    url: str
    agent: str
    allowed: bool


def unescape(text: str) -> bytes:
    def one(found: re.Match[bytes]) -> bytes:
        escaped: bytes = found[1]
        return bytes([int(escaped[1:], 16)]) if len(escaped) == 3 else MEANS.get(escaped, escaped)

    return ESCAPE.sub(one, text.encode())


def fields(text: str) -> Iterator[tuple[str, bytes]]:
    """Names with their values, in protobuf's text format; strings that follow each other are one."""
    name, value = "", b""
    for string, word in TOKEN.findall(text):
        if not word:
            value += unescape(string)
        elif word.isupper():
            value = word.encode()
        else:
            yield name, value
            name, value = word, b""
    yield name, value


def cases() -> Iterator[Case]:
    for path in sorted((FOLDER / "robots").glob("*.textproto")):
        case = Case(path.name, b"", "", "", allowed=True)
        for name, value in fields(path.read_text("utf-8")):
            if name == "robotstxt":
                case = case._replace(robots=value)
            elif name == "testurl":
                case = case._replace(url=value.decode())
            elif name == "useragent":
                case = case._replace(agent=value.decode())
            elif name == "expected_outcome":
                yield case._replace(allowed=value == b"ALLOWED")


def verdict(case: Case) -> bool:
    return Robots.from_body(case.robots).allowed(case.url, case.agent).allowed


def test_every_case_but_the_documented_exception(figure: Callable[[str], None]) -> None:
    every = list(cases())
    judged = [case for case in every if not case.url.endswith(ALWAYS_ALLOWED)]
    wrong = [case for case in judged if verdict(case) != case.allowed]
    figure(
        f"conformance, robotstxt-spec-test: {len(judged) - len(wrong)} of {len(every)}, "
        f"{len(every) - len(judged)} left out because robots.txt itself is always allowed"
    )
    assert len(every) == sum(
        path.read_text("utf-8").count("expected_outcome:") for path in (FOLDER / "robots").glob("*.textproto")
    )
    assert every
    assert wrong == []
