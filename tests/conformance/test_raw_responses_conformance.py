"""Malformed and odd answers that nobody here wrote, byte for byte: each ends as an outcome, and the client goes on."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from tests.support.web import Script, Web, ask, client, response, then_close, then_hang

FOLDER = Path(os.environ.get("HOLDFAST_CONFORMANCE") or Path(__file__).parents[2].parent / "shared" / "conformance")
FILES = sorted((FOLDER / "raw-responses").glob("*.asis"))

pytestmark = pytest.mark.skipif(
    not FILES, reason=f"there are no raw responses in {FOLDER}; set HOLDFAST_CONFORMANCE to their folder"
)

TYPED = {Outcome.OK, Outcome.BAD_RESPONSE, Outcome.CONNECTION_FAILED}
MUTATIONS = [b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"Location: \xff\xfe\r\n", b"Transfer-Encoding: chunked\r\n",
             b"Content-Length: -1\r\n", b"Content-Encoding: g\xffzip\r\n", b"HTTP/1.1 \xff", b"HTTP/1.1 200 OK\r\n"]  # fmt: skip


def fetch_all(answers: dict[str, bytes], end: Callable[[bytes], Script], seconds: float) -> dict[str, FetchResult]:
    async def run() -> dict[str, FetchResult]:
        scripts = {path: end(data) for path, data in answers.items()}
        async with Web(scripts) as web, Web({"/": response(b"good")}) as other, client() as one:
            asked = (one.fetch(ask(web.url(path), any_type=True, timeout=seconds)) for path in answers)
            results = await asyncio.wait_for(asyncio.gather(*asked), 60)
            good = await one.fetch(ask(other.url()))
            assert (good.outcome, good.detail, good.body) == (Outcome.OK, "", b"good")
            return dict(zip(answers, results, strict=True))

    return asyncio.run(run())


def test_every_answer_is_an_outcome(figure: Callable[[str], None]) -> None:
    results = fetch_all({f"/{file.name}": file.read_bytes() for file in FILES}, then_close, 10)
    outcomes = Counter(result.outcome for result in results.values())
    figure(f"conformance, raw responses: {len(results)} typed, " + ", ".join(f"{n} {o}" for o, n in outcomes.items()))
    assert set(outcomes) <= TYPED
    for result in results.values():
        assert result.body in (b"", b"Test.", b"Test.\n") or result.outcome is Outcome.OK
        assert result.detail or result.outcome is Outcome.OK
        assert not [c for value in result.headers.values() for c in value if ord(c) < 32]


def test_every_answer_ends_though_the_server_does_not() -> None:
    results = fetch_all({f"/{file.name}": file.read_bytes() for file in FILES}, then_hang, 0.5)
    assert {result.outcome for result in results.values()} <= TYPED | {Outcome.TIMEOUT}


def test_answers_like_these() -> None:
    """The same with bytes put in and changed at random: more of the kind, from a fixed seed."""
    chance = random.Random(6)
    answers = {}
    for number in range(500):
        data = bytearray(chance.choice(FILES).read_bytes())
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[at:at] = chance.choice(MUTATIONS)
            else:
                data[at] = chance.randrange(256)
        answers[f"/{number}"] = bytes(data)
    results = fetch_all(answers, then_close, 10)
    assert {result.outcome for result in results.values()} <= TYPED | {
        Outcome.BAD_ENCODING,
        Outcome.TOO_LARGE,
        Outcome.CLIENT_ERROR,
    }
