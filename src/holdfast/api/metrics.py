"""Figures in the form that Prometheus reads.

The rule: what is counted and how it is called is `control/measures`' business; here it is only written down.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast.control.measures import Family

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST


class _Families(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            # The library gives counters their ending; one that is called otherwise has no type in this format.
            name = family.name.removesuffix("_total")
            kind = "unknown" if family.kind == "counter" and name == family.name else family.kind
            metric = Metric(name, family.help, kind)
            for sample in family.samples:
                metric.add_sample(family.name + sample.suffix, dict(sample.labels), sample.value)
            yield metric


def written(families: Iterable[Family]) -> bytes:
    """The text of these families."""
    registry = CollectorRegistry()
    registry.register(_Families(list(families)))
    return generate_latest(registry)
