"""Extraction of main content beside other extractors: F1 of words, snippets kept, CPU time; by kind of page. Prints tables.

    make bench-text

The pages are those of `corpus`; the model was fitted on those with even ids, so the odd ones say what to expect elsewhere. CPU time is
that of the extraction in one process, which reads the bytes of a page and returns its text; the reference of every row is the same
run. "better of two" takes, knowing the truth, the better of trafilatura and resiliparse for each page: no program could know that.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.text import peers
from benchmarks.text.corpus import KINDS, CorpusPage, f1, folder, keeps, load
from holdfast.parse.html import parse_html
from holdfast.parse.text.extract import extract_document

TOLERANCE = 0.02
"""How far below the best other extractor of a kind ours may be."""

Texts = dict[str, tuple[str, float]]


def ours(pages: Sequence[CorpusPage], extract: Callable[[CorpusPage], str]) -> Texts:
    """Extract with a function of ours."""
    found = {}
    for page in pages:
        began = time.process_time()
        text = extract(page)
        found[page.file_id] = (text, time.process_time() - began)
    return found


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values) if values else 0.0


def table(
    title: str, pages: Sequence[CorpusPage], figures: dict[str, dict[str, float]], costs: dict[str, float]
) -> None:
    """Print one table of F1 values by kind."""
    print(f"\n{title} ({len(pages)} pages)")
    print(f"{'':<24}{'all':>7}" + "".join(f"{kind[:9]:>11}" for kind in KINDS) + f"{'CPU ms':>9}")
    for name, scores in figures.items():
        by_kind = [mean([scores[page.file_id] for page in pages if page.kind == kind]) for kind in KINDS]
        cost = f"{costs[name]:>9.1f}" if name in costs else ""
        print(
            f"{name:<24}{mean([scores[p.file_id] for p in pages]):>7.3f}"
            + "".join(f"{v:>11.3f}" for v in by_kind)
            + cost
        )


def snippets(pages: Sequence[CorpusPage], texts: dict[str, Texts]) -> None:
    """Print how many of the snippets are kept that must be, and of those that must not."""
    print(f"\nSnippets kept\n{'':<24}{'wanted':>9}{'unwanted':>10}")
    for name, found in texts.items():
        wanted = [keeps(found[page.file_id][0], snippet) for page in pages for snippet in page.wanted]
        unwanted = [keeps(found[page.file_id][0], snippet) for page in pages for snippet in page.unwanted]
        print(f"{name:<24}{mean(wanted):>9.3f}{mean(unwanted):>10.3f}")


def judged(pages: Sequence[CorpusPage], figures: dict[str, dict[str, float]], name: str) -> list[str]:
    """Return the kinds of which the best other extractor is better by more than TOLERANCE."""
    faults = []
    for kind in KINDS:
        of_kind = [page.file_id for page in pages if page.kind == kind]
        mine = mean([figures["Holdfast"][each] for each in of_kind])
        best, by = max((mean([figures[peer.name][each] for each in of_kind]), peer.name) for peer in peers.ALL)
        if mine < best - TOLERANCE:
            faults.append(f"{name}, {kind}: {mine:.3f}, {best - mine:.3f} below {by}")
    return faults


def main() -> int:
    """Run all extractors; the exit code is 1 if ours is far below another one for some kind of page."""
    pages = load()
    files = [folder() / "html" / f"{page.file_id}.html.gz" for page in pages]
    texts = {peer.name: peers.run(peer, pages, files) for peer in peers.ALL}
    texts["Holdfast, all text"] = ours(pages, lambda page: parse_html(page.html, links_per_page=1000).text)
    texts["Holdfast"] = ours(pages, lambda page: extract_document(page.html, page.url).text)
    figures = {name: {p.file_id: f1(found[p.file_id][0], p.content) for p in pages} for name, found in texts.items()}
    costs = {name: 1000 * mean([took for _, took in found.values()]) for name, found in texts.items()}
    both = figures["trafilatura"], figures["resiliparse, comments"]
    figures["better of two"] = {page.file_id: max(each[page.file_id] for each in both) for page in pages}
    even, odd = [page for page in pages if page.even], [page for page in pages if not page.even]
    table("F1, odd ids: not seen by the fitting", odd, figures, costs)
    table("F1, even ids: fitted on", even, figures, costs)
    table("F1, all", pages, figures, costs)
    snippets(odd, texts)
    right = mean([extract_document(page.html, page.url).kind.value == page.kind for page in odd])
    print(f"\nKind of page judged as marked, odd ids: {right:.3f}")
    faults = judged(pages, figures, "all") + judged(odd, figures, "odd")
    for fault in faults:
        print(f"MISSED: {fault}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(figures), encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
