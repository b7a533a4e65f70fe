"""Find what grows over a soak.

The rule: what the first quarter of the time needs (caches, compiled code) does not count; the last quarter is compared with the second.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence


def growth(samples: Mapping[str, Sequence[int]], limits: Mapping[str, tuple[float, int]]) -> Iterator[str]:
    """Name each series whose median is greater in the last quarter than in the second one. `limits`: by the last word of a name, the factor
    and the amount that are allowed."""
    for name, values in samples.items():
        quarter = max(1, len(values) // 4)
        before = statistics.median(values[quarter : 2 * quarter] or values[:quarter])
        after = statistics.median(values[-quarter:])
        times, more = limits[name.rpartition(" ")[2]]
        if after > before * times + more:
            yield f"{name} grew from {before:,.0f} to {after:,.0f}"
