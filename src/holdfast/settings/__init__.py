"""Settings: one frozen tree, loaded once at the start and passed to constructors, never fetched.

`tree` declares the settings, `sources` loads them, `duration` reads and writes times.
"""

from holdfast.settings.duration import Duration
from holdfast.settings.duration import render as render_duration
from holdfast.settings.sources import load
from holdfast.settings.tree import (
    Claims,
    Cooldown,
    Domains,
    Flush,
    Origin,
    Rollout,
    Setting,
    Settings,
    Store,
    Urls,
    catalog,
    groups,
    masked,
)

__all__ = [
    "Claims",
    "Cooldown",
    "Domains",
    "Duration",
    "Flush",
    "Origin",
    "Rollout",
    "Setting",
    "Settings",
    "Store",
    "Urls",
    "catalog",
    "groups",
    "load",
    "masked",
    "render_duration",
]
