"""Site-aware removal on three manuals of Debian: how many words of boilerplate are left before and after, and how many main words are lost.

    python benchmarks/site_text.py

The packages are unpacked below `.peers`, nothing is installed. The truth is the element that the generator of each manual puts around
the text. Boilerplate words are those that a text has more often than that element. "page" is all text of a page, "chain" what the
extraction keeps; both before and after the removal of blocks that stand on many pages of the manual. The exit code is 1 if more than one
percent of the main words is lost by the removal from what the chain keeps.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser

from holdfast.parse.text.blocks import read_blocks
from holdfast.parse.text.extract import extract_document
from holdfast.parse.text.repeated import add_page, block_hash, pruned, repeated_blocks

FOLDER = Path(__file__).parents[1] / ".peers" / "manuals"
MANUALS = (
    ("python3.11-doc", "usr/share/doc/python3.11/html", "[role=main]"),
    (
        "postgresql-doc-15",
        "usr/share/doc/postgresql-doc-15/html",
        ".sect1, .chapter, .refentry, .part, .book, .appendix, .preface, .index, .bibliography",
    ),
    (
        "debian-handbook",
        "usr/share/doc/debian-handbook/html/en-US",
        ".section, .chapter, .preface, .appendix, .article, .index, .book",
    ),
)
"""Package, folder of its pages, and the element with the main text."""
MAX_LOST = 0.01
_WORD = re.compile(r"\w+")


def words(text: str) -> Counter[str]:
    """Count the words of a text."""
    return Counter(_WORD.findall(text.lower()))


def unpack(package: str) -> Path:
    """Return the folder of an unpacked package. After: it is there."""
    target = FOLDER / package
    if not target.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        subprocess.run(["apt-get", "-o", "APT::Sandbox::User=root", "-qq", "download", package], cwd=FOLDER, check=True)
        (file,) = FOLDER.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", file, target], check=True)
        file.unlink()
    return target


def measure(package: str, folder: str, selector: str) -> tuple[list[int], float]:
    """Return seven sums (boilerplate: page, page after, chain, chain after; main words of page, chain, chain after) and the share lost."""
    files = sorted(file for file in (unpack(package) / folder).rglob("*.html") if file.is_file())
    pages, counts = [], Counter[int]()
    for file in files:
        markup = file.read_bytes()
        tree = LexborHTMLParser(markup)
        main = tree.css_first(selector)
        if main is None or tree.body is None:
            continue
        whole = [block.text for block in read_blocks(tree)[0]]
        # The text of the main element, by the same reading of the page.
        inner = LexborHTMLParser(f"<body>{main.html}</body>".encode())
        truth = words("\n".join(block.text for block in read_blocks(inner)[0]))
        document = extract_document(markup, f"https://manual.example/{file.relative_to(unpack(package) / folder)}")
        kept = [document.text[block.text_start : block.text_end] for block in document.blocks]
        add_page(counts, [block_hash(text) for text in whole])
        pages.append((truth, whole, kept))
    snapshot = pruned(counts)
    sums = [0] * 7
    for truth, whole, kept in pages:
        for place, texts in ((0, whole), (2, kept)):
            gone = set(
                repeated_blocks(
                    [block_hash(text) for text in texts], [len(text.split()) for text in texts], snapshot, len(pages)
                )
            )
            before, after = (
                words("\n".join(texts)),
                words("\n".join(text for n, text in enumerate(texts) if n not in gone)),
            )
            sums[place] += (before - truth).total()
            sums[place + 1] += (after - truth).total()
            if place == 2:
                sums[5] += (before & truth).total()
                sums[6] += (after & truth).total()
        sums[4] += truth.total()
    lost = 1 - sums[6] / sums[5] if sums[5] else 0.0
    print(
        f"{package:<20}{len(pages):>7}{sums[4]:>12}{sums[0]:>12}{sums[1]:>10}{sums[2]:>14}{sums[3]:>10}"
        f"{1 - sums[5] / sums[4]:>12.2%}{lost:>12.3%}"
    )
    return sums, lost


def main() -> int:
    """Print the table."""
    print("Boilerplate words, before and after the removal; main words lost by the chain, and by the removal:\n")
    print(
        f"{'manual':<20}{'pages':>7}{'main words':>12}{'page':>12}{'after':>10}{'chain':>14}{'after':>10}{'chain lost':>12}{'removal':>12}"
    )
    results = [measure(*manual) for manual in MANUALS]
    return int(any(lost > MAX_LOST for _, lost in results))


if __name__ == "__main__":
    sys.exit(main())
