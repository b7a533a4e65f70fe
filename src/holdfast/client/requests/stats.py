"""Requests for health, statistics, alerts, storage and backups, and the streams of events."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.alerts.records import Alert
from holdfast.backups.records import BackupReport
from holdfast.client.decoding import read
from holdfast.client.request_spec import ListSpec, RequestSpec, StreamSpec, decode_list, decode_one, format_path
from holdfast.client.sse import Event, read_event
from holdfast.model.health import Health
from holdfast.stats.records import ErrorCause, Outlook, Stats, TimeSeries
from holdfast.storage.records import StorageReport


def health() -> RequestSpec[Health]:
    """The health of the server, its database and Redis."""
    return RequestSpec("GET", "/health", decode_one(Health))


def stats() -> RequestSpec[Stats]:
    """Statistics of the whole crawl."""
    return RequestSpec("GET", "/api/stats", decode_one(Stats))


def outlook() -> RequestSpec[Outlook]:
    """When domains are crawled again, and what waits for an operator or a sweep."""
    return RequestSpec("GET", "/api/stats/outlook", decode_one(Outlook))


def timeseries(
    *, since: datetime | None = None, until: datetime | None = None, step: str = "minute"
) -> RequestSpec[TimeSeries]:
    """A time series of what was crawled, by default of the last hour. `step`: `minute`, `hour`, `day`, or whole
    minutes such as `5m`."""
    return RequestSpec(
        "GET", "/api/stats/timeseries", decode_one(TimeSeries), {"since": since, "until": until, "step": step}
    )


def recent_errors(*, minutes: int = 15) -> RequestSpec[list[ErrorCause]]:
    """The errors of the last minutes (1 to 60) by outcome, the most frequent first."""
    return RequestSpec("GET", "/api/stats/errors", decode_list(ErrorCause), {"minutes": minutes})


def alerts(*, active: bool | None = None) -> ListSpec[Alert]:
    """Alerts, the newest first."""
    return ListSpec("/api/alerts", Alert, {"active": active})


def acknowledge_alert(alert: int) -> RequestSpec[Alert]:
    """Acknowledge an alert that fires. It still fires until its cause is gone."""
    return RequestSpec("POST", format_path("/api/admin/alerts/{}/acknowledge", alert), decode_one(Alert))


def events(*, kinds: Sequence[str] = (), domain: str | None = None) -> StreamSpec[Event]:
    """Events from now on, of jobs, domains, tasks, workers and alerts (`kinds`); the stream does not end."""
    return StreamSpec("/api/events", read_event, {"kind": list(kinds), "domain": domain})


def watch_stats() -> StreamSpec[Stats]:
    """Statistics, whenever they change; the stream does not end."""
    return StreamSpec("/api/stats/events", lambda name, _, data: read(Stats, data) if name == "stats" else None)


def backups() -> RequestSpec[BackupReport]:
    """Backups that are kept, and which seconds can be restored."""
    return RequestSpec("GET", "/api/backups", decode_one(BackupReport))


def storage() -> RequestSpec[StorageReport]:
    """What the database of the server, its archive and its logs take, and how much room is left."""
    return RequestSpec("GET", "/api/storage", decode_one(StorageReport))
