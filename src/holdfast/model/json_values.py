"""Values that JSON does not know, as the API, exports and `--json` write them."""

import dataclasses
from datetime import UTC, datetime, timedelta


def utc_text(moment: datetime) -> str:
    """A time as ISO 8601 in UTC; without a time zone it is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")


def json_default(value: object) -> object:
    """The `default` of `json.dumps`: times in UTC, durations in seconds, bytes in hexadecimal digits, dataclasses as objects, sets as
    arrays, everything else as text."""
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return list(value) if isinstance(value, set | frozenset) else str(value)
