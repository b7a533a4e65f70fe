"""Other extractors, in virtual environments of their own below `.peers`: never dependencies of the product."""

import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.text.corpus import CorpusPage

PEERS = Path(__file__).parents[2] / ".peers"

# Each reads a page as bytes and returns its text. CPU time of the process, loading and decoding of the corpus not included.
PROGRAM = """
import gzip, json, sys, time
from pathlib import Path

{code}

for line in sys.stdin:
    html = gzip.decompress(Path(line.strip()).read_bytes())
    began = time.process_time()
    try:
        text = extract(html) or ""
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
        text = ""
    took = time.process_time() - began
    print(json.dumps([text, took]), flush=True)
"""


@dataclass(frozen=True)
class Peer:
    """An extractor: the packages to install and the code that defines `extract`."""

    name: str
    packages: tuple[str, ...]
    code: str


_RESILIPARSE = """
from resiliparse.extract.html2text import extract_plain_text

def extract(html):
    return extract_plain_text(html.decode("utf-8", "replace"), preserve_formatting=True, main_content=True, comments={comments})
"""
PACKAGES = ("resiliparse==2.0.0", "trafilatura==2.3.1", "readability-lxml==0.9")
ALL = (
    Peer("trafilatura", PACKAGES, "import trafilatura\n\ndef extract(html):\n    return trafilatura.extract(html)"),
    Peer("resiliparse", PACKAGES, _RESILIPARSE.format(comments=False)),
    Peer("resiliparse, comments", PACKAGES, _RESILIPARSE.format(comments=True)),
    Peer(
        "readability-lxml",
        PACKAGES,
        "from lxml import html as parser\nfrom readability import Document\n\ndef extract(html):\n"
        "    found = Document(html.decode('utf-8', 'replace')).summary()\n"
        "    return ' '.join(parser.fromstring(found).itertext())",
    ),
)


def interpreter(name: str, *packages: str) -> Path:
    """Return the interpreter of an environment with these packages. After: it is there, installed if it was not."""
    folder = PEERS / name
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    wanted = "\n".join(packages)
    if not ready.exists() or ready.read_text("utf-8") != wanted:
        print(f"Installing {', '.join(packages)} into .peers/{name} …", file=sys.stderr, flush=True)
        PEERS.mkdir(exist_ok=True)
        (PEERS / ".gitignore").write_text("*\n", encoding="utf-8")
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
        for package in packages:  # one by one, since pip may not join the same extra of two packages
            subprocess.run([*pip, package], check=True)
        ready.write_text(wanted, encoding="utf-8")
    return python


def run(peer: Peer, pages: Sequence[CorpusPage], files: Sequence[Path]) -> dict[str, tuple[str, float]]:
    """Return the text of each page by its id, and the CPU seconds it took."""
    python = interpreter("text", *peer.packages)
    done = subprocess.run(
        [python, "-c", PROGRAM.format(code=peer.code)],
        input="\n".join(map(str, files)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {page.file_id: (text, took) for page, (text, took) in zip(pages, answers, strict=True)}
