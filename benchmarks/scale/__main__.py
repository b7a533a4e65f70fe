"""Whether costs stay flat as the frontier grows. Prints a table, draws a chart; never a gate.

    python -m benchmarks.scale [--urls 1000000 10000000] [--domains 1000000 5000000] [--json FILE] [--chart FILE] [--work FOLDER]

Each size is measured in a store of its own, with its URLs on many domains and on a single one, and is in the file of figures as soon as
it is known. Sizes that are in the file are not measured again: a run that was cut off goes on, and a larger size is added by another
command (--urls 50000000). Remove the file to begin anew.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.scale import chart, claims, fill, frontier, pages, table, worker
from benchmarks.scale.ledger import Ledger
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Address, Site, Web

MANY, ONE = "many", "one"
ALL, FEW = "all", f"{1 - claims.NOT_DUE:.0%}"
SITE = Site(pages=1, links=20, body_bytes=3000, latency=0.01)
"""Its page has links to itself only: a worker adds nothing to the URLs that we have numbered."""
LEAST_URLS, LEAST_DOMAINS = 100_000, 50_000
"""With fewer, the repeats would find nothing more to take."""
NOWHERE = Address((80,))
"""Of domains that nobody visits."""


def main() -> int:
    """Measure what is not known yet, print, draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--urls", type=int, nargs="*", default=[1_000_000, 10_000_000], help="sizes of the frontier")
    parser.add_argument("--domains", type=int, nargs="*", default=[1_000_000, 5_000_000], help="domains to claim from")
    parser.add_argument("--json", type=Path, default=Path("scale.json"), help="the file of figures")
    parser.add_argument("--chart", type=Path, help="draw all sizes in the file here (PNG, SVG …)")
    parser.add_argument("--work", type=Path, default=Path(".bench/scale"), help="where the stores are while they last")
    options = parser.parse_args()
    if (
        min(options.urls, default=LEAST_URLS) < LEAST_URLS
        or min(options.domains, default=LEAST_DOMAINS) < LEAST_DOMAINS
    ):
        parser.error(f"{LEAST_URLS:,} URLs and {LEAST_DOMAINS:,} domains are the least that can be measured")
    if options.chart and (problem := chart.available()):
        print(problem, file=sys.stderr)
        return 2
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(options.json)
    for urls in sorted(options.urls):
        for shape in (MANY, ONE):
            measure_frontier(ledger, work, urls, shape)
    for domains in sorted(options.domains):
        measure_claims(ledger, work, domains)
    if not ledger.has("pages"):
        measure_pages(ledger, work)
    print("\n".join(table.lines(ledger)))
    if options.chart and ledger.of("frontier"):
        chart.draw(ledger, options.chart)
        print(f"\nChart: {options.chart}")
    return 0


def measure_frontier(ledger: Ledger, work: Path, urls: int, shape: str) -> None:
    """One size in one shape."""
    if ledger.has("frontier", urls=urls, shape=shape):
        return
    domains = max(1, urls // fill.URLS_A_DOMAIN) if shape == MANY else 1
    print(f"\nFrontier: {urls:,} URLs on {domains:,} domain{'s' if domains > 1 else ''}", flush=True)
    fill.enough_disk(work, urls)
    with WebProcess(Web(4, domains, SITE)) as web, fill.store(work / "frontier") as place:
        fill.domains(place, web.address, domains)
        fill.urls(place, urls, domains)
        fill.calm(place)
        figures = {"urls": urls, "shape": shape, "domains": domains, **frontier.size(place)}
        figures |= worker.measure(place, web)
        figures |= frontier.speed(place, domains)
        ledger.add("frontier", figures | worker.verify(place))


def measure_claims(ledger: Ledger, work: Path, domains: int) -> None:
    """All domains ready, and then most of them not due."""
    wanted = [ready for ready in (ALL, FEW) if not ledger.has("claims", domains=domains, ready=ready)]
    if not wanted:
        return
    print(f"\nClaims: {domains:,} domains", flush=True)
    fill.enough_disk(work, 3 * domains)  # a domain is that much longer than a URL
    with fill.store(work / "claims") as place:
        fill.domains(place, NOWHERE, domains)
        for ready in wanted:
            if ready == FEW:
                claims.put_off(place)
            fill.calm(place)
            ledger.add("claims", {"domains": domains, "ready": ready, **claims.speed(place)})


def measure_pages(ledger: Ledger, work: Path) -> None:
    """What a page takes."""
    print("\nPages", flush=True)
    with fill.store(work / "pages") as place:
        fill.domains(place, NOWHERE, pages.DOMAINS)
        ledger.add("pages", pages.size(place))


if __name__ == "__main__":
    sys.exit(main())
