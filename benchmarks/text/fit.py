"""Fitting of the model that judges blocks and kinds of pages: writes `src/holdfast/parse/text/model.py`.

    python -m benchmarks.text.fit [--check]

Only pages with an even id are read. A block's target is the share of its words that stand in the main content: of its sequences of four
words, or all of it if it is short. Boosted regression trees are fitted by scikit-learn, which is installed into `.peers`, with
fixed seeds and one thread; the trees are written as Python expressions, so that the product needs no library for them. `--check` prints the
figures of a cross-validation by domains instead, and writes nothing.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from benchmarks.text.corpus import KINDS, CorpusPage, f1, load, words
from benchmarks.text.peers import interpreter
from holdfast.parse.text.blocks import read_blocks
from holdfast.parse.text.extract import selected
from holdfast.parse.text.features import BLOCK_FEATURES, PAGE_FEATURES, block_features, fill_containers, page_features
from holdfast.parse.text.hints import read_hints

MODEL = Path(__file__).parents[2] / "src" / "holdfast" / "parse" / "text" / "model.py"
FOLDS = 4
MAX_ROWS = 300
"""Blocks of a page that are used, evenly chosen, so that large pages do not rule."""
CONTENT_TREES = {
    "max_iter": 80,
    "learning_rate": 0.1,
    "max_leaf_nodes": 8,
    "min_samples_leaf": 40,
    "l2_regularization": 1.0,
    "max_bins": 63,
    "max_features": 0.4,
}
KIND_TREES = {
    "max_iter": 25,
    "learning_rate": 0.2,
    "max_leaf_nodes": 4,
    "min_samples_leaf": 8,
    "l2_regularization": 1.0,
    "max_bins": 63,
}

FITTER = """
import json, sys
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

task = json.load(sys.stdin)
fitted = []
for one in task:
    model = HistGradientBoostingRegressor(random_state=0, **one["options"])
    model.fit(np.array(one["rows"], dtype=np.float64), np.array(one["targets"]), np.array(one["weights"]))
    trees = []
    for (tree,) in model._predictors:
        trees.append([
            [float(n["value"])] if n["is_leaf"] else [int(n["feature_idx"]), float(n["num_threshold"]), int(n["left"]), int(n["right"])]
            for n in tree.nodes
        ])
    fitted.append({"start": float(np.ravel(model._baseline_prediction)[0]), "trees": trees})
json.dump(fitted, sys.stdout)
"""

Tree = list[list[float]]
Fitted = dict[str, Any]


class Sample:
    """A page as rows of numbers."""

    def __init__(self, page: CorpusPage) -> None:
        self.page = page
        tree = LexborHTMLParser(page.html)
        blocks, containers = read_blocks(tree)
        hints = read_hints(tree)
        fill_containers(blocks, containers)
        self.page_row = [float(value) for value in page_features(blocks, containers, hints, page.url)]
        self.rows = [[float(value) for value in row] for row in block_features(blocks, containers, hints)]
        self.blocks = blocks
        self.sizes = [block.words for block in blocks]
        self.targets = list(targets(page, [block.text for block in blocks]))
        wanted = max(50, len(words(page.content)))
        self.weights = [size / (50 + (sum(self.sizes) * wanted) ** 0.5) for size in self.sizes]
        self.domain = urlsplit(page.url).netloc


def targets(page: CorpusPage, texts: Sequence[str]) -> Iterator[float]:
    """Iterate over the share of content of each block."""
    content = words(page.content)
    joined = f" {' '.join(content)} "
    sequences = set(zip(content, content[1:], content[2:], content[3:], strict=False))
    for text in texts:
        own = words(text)
        if len(own) <= 6:
            yield float(bool(own) and f" {' '.join(own)} " in joined)
        else:
            found = [each in sequences for each in zip(own, own[1:], own[2:], own[3:], strict=False)]
            yield sum(found) / len(found)


def content_task(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the fitting of the scores of blocks."""
    rows, wanted, weights = [], [], []
    for sample in samples:
        step = max(1.0, len(sample.rows) / MAX_ROWS)
        for number in sorted({int(index * step) for index in range(min(MAX_ROWS, len(sample.rows)))}):
            rows.append(sample.rows[number] + sample.page_row)
            wanted.append(sample.targets[number])
            weights.append(sample.weights[number] * step)
    return {"options": CONTENT_TREES, "rows": rows, "targets": wanted, "weights": weights}


def kind_tasks(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Return the fitting of each kind of page against all others."""
    rows = [sample.page_row for sample in samples]
    return [
        {
            "options": KIND_TREES,
            "rows": rows,
            "targets": [float(s.page.kind == kind) for s in samples],
            "weights": [1.0] * len(rows),
        }
        for kind in KINDS
    ]


def fit(samples: Sequence[Sample]) -> list[Fitted]:
    """Fit the content model and those of the kinds."""
    task = json.dumps([content_task(samples), *kind_tasks(samples)])
    python = interpreter("fit", "scikit-learn==1.9.1", "numpy==2.4.6")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-c", FITTER], input=task, capture_output=True, text=True, env=environment, check=True
    )
    fitted: list[Fitted] = json.loads(done.stdout)
    return fitted


def predict(fitted: Fitted, row: Sequence[float]) -> float:
    """Return the sum of the trees."""
    total = float(fitted["start"])
    for tree in fitted["trees"]:
        node = tree[0]
        while len(node) > 1:
            node = tree[node[2] if row[int(node[0])] <= node[1] else node[3]]
        total += node[0]
    return total


def check(samples: Sequence[Sample]) -> None:
    """Print the figures of a cross-validation in which the pages of a domain are in the same part."""
    domains = sorted({sample.domain for sample in samples})
    part = {domain: (7 * number) % FOLDS for number, domain in enumerate(domains)}
    figures: dict[str, list[float]] = {kind: [] for kind in KINDS}
    right = 0
    for fold in range(FOLDS):
        content, *kinds = fit([sample for sample in samples if part[sample.domain] != fold])
        for sample in (each for each in samples if part[each.domain] == fold):
            scores = [predict(content, row + sample.page_row) for row in sample.rows]
            kept = "\n".join(block.text for block in selected(sample.blocks, scores))
            figures[sample.page.kind].append(f1(kept, sample.page.content))
            judged = max(zip(KINDS, kinds, strict=True), key=lambda pair: predict(pair[1], sample.page_row))[0]
            right += judged == sample.page.kind
    every = [value for values in figures.values() for value in values]
    print(f"F1 {sum(every) / len(every):.4f}, kind right {right / len(every):.3f}")
    print("  ".join(f"{kind} {sum(values) / len(values):.3f}" for kind, values in figures.items()))


def written(fitted: Sequence[Fitted]) -> str:
    """Return the module `model`."""
    content, *kinds = fitted
    lines = [
        '"""Scores of blocks and of kinds of pages: sums of small decision trees over the features.',
        "",
        "Written by `python -m benchmarks.text.fit`, and not to be edited by hand. The rule: a score of a block is the probability that",
        "its words are main content, before it is cut to the range from 0 to 1; of the kinds of a page the highest score counts.",
        '"""',
        "",
        "# fmt: off",
        "# ruff: noqa: E501",
        "",
        "",
        "def content_scores(rows: list[tuple[float, ...]], page: tuple[float, ...]) -> list[float]:",
        '    """Return the score of each block. `rows`: in the order of BLOCK_FEATURES; `page`: in that of PAGE_FEATURES."""',
    ]
    names = [*BLOCK_FEATURES, *PAGE_FEATURES]
    used = {names[int(node[0])] for tree in content["trees"] for node in tree if len(node) > 1}
    lines += [f"    {_unpacked(PAGE_FEATURES, used)} = page", "    scores = []", "    for row in rows:"]
    lines += [f"        {_unpacked(BLOCK_FEATURES, used)} = row", "        scores.append("]
    lines += [f"            {content['start']:.5g}"]
    lines += [f"            + {_expression(tree, names, 0)}" for tree in content["trees"]]
    lines += ["        )", "    return scores", "", "", "def kind_scores(page: tuple[float, ...]) -> dict[str, float]:"]
    lines += ['    """Return the score of each kind of page. `page`: in the order of PAGE_FEATURES."""']
    used = {PAGE_FEATURES[int(node[0])] for one in kinds for tree in one["trees"] for node in tree if len(node) > 1}
    lines += [f"    {_unpacked(PAGE_FEATURES, used)} = page", "    return {"]
    for kind, one in zip(KINDS, kinds, strict=True):
        lines += [f'        "{kind}": {one["start"]:.5g}']
        lines += [f"            + {_expression(tree, PAGE_FEATURES, 0)}" for tree in one["trees"]]
        lines[-1] += ","
    return "\n".join([*lines, "    }", ""])


def _unpacked(names: Sequence[str], used: set[str]) -> str:
    return ", ".join(name if name in used else "_" for name in names)


def _expression(tree: Tree, names: Sequence[str], number: int) -> str:
    node = tree[number]
    if len(node) == 1:
        return f"{node[0]:.4g}"
    left, right = (_expression(tree, names, int(node[side])) for side in (2, 3))
    return f"({left} if {names[int(node[0])]} <= {node[1]:.6g} else {right})"


def main() -> int:
    """Fit, and write the model or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    samples = [Sample(page) for page in load() if page.even]
    if options.check:
        check(samples)
    else:
        MODEL.write_text(written(fit(samples)), encoding="utf-8")
        print(f"Written: {MODEL.name}, from {len(samples)} pages.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
