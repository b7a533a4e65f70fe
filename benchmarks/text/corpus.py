"""The pages that extraction is measured on, and the measures.

The pages are the development split of WCXB (`../shared/conformance/wcxb`, or the folder `wcxb` of HOLDFAST_CONFORMANCE), read
in place. Words are `\\w+` in lower case; F1 is that of the multisets of words. A snippet is kept if its words stand in order in the text.
"""

import gzip
import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

KINDS = ("article", "service", "product", "collection", "forum", "listing", "documentation")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class CorpusPage:
    """A page with its main content, as people marked it."""

    file_id: str
    url: str
    kind: str
    html: bytes
    content: str
    wanted: tuple[str, ...]
    """Snippets that must be kept."""
    unwanted: tuple[str, ...]

    @property
    def even(self) -> bool:
        """Whether it may be used for fitting."""
        return int(self.file_id) % 2 == 0


def folder() -> Path:
    """Return the folder of the corpus."""
    shared = os.environ.get("HOLDFAST_CONFORMANCE")
    return (Path(shared) if shared else Path(__file__).parents[3] / "shared" / "conformance") / "wcxb"


def load() -> list[CorpusPage]:
    """Read all pages, in the order of their ids."""
    found = []
    for file in sorted((folder() / "ground-truth").glob("*.json")):
        entry = json.loads(file.read_text("utf-8"))
        truth = entry["ground_truth"]
        found.append(
            CorpusPage(
                entry["file_id"],
                entry["url"] or "https://unknown.example/",
                entry["_internal"]["page_type"]["primary"],
                gzip.decompress((folder() / "html" / f"{entry['file_id']}.html.gz").read_bytes()),
                truth["main_content"],
                tuple(truth["with"] or ()),
                tuple(truth["without"] or ()),
            )
        )
    if not found:
        raise SystemExit(
            f"There are no pages in {folder()}; HOLDFAST_CONFORMANCE says where the conformance files are."
        )
    return found


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text.lower())


def f1(found: str, wanted: str) -> float:
    """Return F1 of the words of two texts."""
    have, want = Counter(words(found)), Counter(words(wanted))
    both = (have & want).total()
    return 2 * both / (have.total() + want.total()) if both else float(not have and not want)


def keeps(text: str, snippet: str) -> bool:
    """Return whether the words of the snippet stand in the text, in order and without others between them."""
    return f" {' '.join(words(snippet))} " in f" {' '.join(words(text))} "
