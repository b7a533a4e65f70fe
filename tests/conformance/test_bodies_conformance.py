"""Packed bodies that nobody here wrote, through the real client; they stay in their folder."""

import asyncio
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from tests.support.web import Web, ask, client, response

FOLDER = Path(os.environ.get("HOLDFAST_CONFORMANCE") or Path(__file__).parents[2].parent / "shared" / "conformance")
BODIES = FOLDER / "encoded-bodies"

pytestmark = pytest.mark.skipif(
    not BODIES.is_dir(), reason=f"there are no packed bodies in {FOLDER}; set HOLDFAST_CONFORMANCE to their folder"
)

LAYERS = {"rawdeflate": "deflate", "zlibdeflate": "deflate"}


def encoding(name: str) -> str:
    """The Content-Encoding that a file's name stands for."""
    return ", ".join(LAYERS.get(layer, layer) for layer in name.removesuffix(".bin").split("-")[1:])


def fetch_all(kind: str, max_bytes: int) -> dict[str, FetchResult]:
    files = sorted(BODIES.glob(f"{kind}-*.bin"))
    answers = {f"/{file.name}": response(file.read_bytes(), Content_Encoding=encoding(file.name)) for file in files}

    async def run() -> dict[str, FetchResult]:
        async with Web(answers) as web, client(max_bytes=max_bytes) as one:
            return {path[1:]: await one.fetch(ask(web.url(path))) for path in answers}

    return asyncio.run(run())


def test_pages_decode(figure: Callable[[str], None]) -> None:
    results = fetch_all("html", 10 << 20)
    plain = {name: result for name, result in results.items() if encoding(name).count(",") < 2}
    wrong = [
        name
        for name, result in plain.items()
        if result.outcome is not Outcome.OK or not result.body.startswith(b"<!DOCTYPE") or b"</html>" not in result.body
    ]
    figure(f"conformance, packed bodies: {len(plain) - len(wrong)} of {len(plain)} decode")
    assert plain
    assert wrong == []
    assert len({len(result.body) // 100 for result in plain.values()}) == 1


def test_more_than_two_layers_are_refused() -> None:
    results = [result for name, result in fetch_all("html", 10 << 20).items() if encoding(name).count(",") >= 2]
    assert results
    assert {(result.outcome, result.body) for result in results} == {(Outcome.BAD_ENCODING, b"")}


@pytest.mark.parametrize("max_bytes", [1 << 16, 10 << 20, 1 << 30])
def test_bombs_are_refused(max_bytes: int) -> None:
    tracemalloc.start()
    results = fetch_all("bomb", max_bytes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert results
    assert {result.outcome for result in results.values()} <= {Outcome.TOO_LARGE, Outcome.BAD_ENCODING}
    assert not any(result.body for result in results.values())
    assert peak < min(max_bytes, 6 << 20) + (4 << 20)
