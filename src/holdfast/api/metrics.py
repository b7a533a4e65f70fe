"""Metrics in the text format of Prometheus.

The rule: the names and values of metrics come from `stats/metrics`; this module only formats them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast.stats.metrics import Family

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST


class _FamilyCollector(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            # The library appends `_total` to counters; a counter without that suffix has no type in this format.
            name = family.name.removesuffix("_total")
            kind = "unknown" if family.kind == "counter" and name == family.name else family.kind
            metric = Metric(name, family.help, kind)
            for sample in family.samples:
                metric.add_sample(family.name + sample.suffix, dict(sample.labels), sample.value)
            yield metric


def render(families: Iterable[Family]) -> bytes:
    """The text of these metric families."""
    registry = CollectorRegistry()
    registry.register(_FamilyCollector(list(families)))
    return generate_latest(registry)
