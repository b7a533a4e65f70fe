"""Proxies from files of any length: a line each, or a table (CSV).

The rule: memory does not grow with the file, a bad line is counted and reported with its number, and what was read before an
interruption is in the store; importing the same file again adds what is missing. What is said of a line holds nothing of it.
"""

import csv
import io
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import BinaryIO, Final

from holdfast.control.input_files import Damaged, Progress, lines
from holdfast.errors import SettingsError, UsageError
from holdfast.model.proxy import ParsedProxy, Protocol, make_proxy, parse_protocol, parse_proxy
from holdfast.proxies.queries import proxies
from holdfast.proxies.queries.proxies import Facts, NewProxy
from holdfast.proxies.service import ProxyService

BATCH: Final = 500
"""Lines that go into the store in one transaction."""

_LONGEST_LINE: Final = 16 * 1024
_NAMES: Final = {
    **dict.fromkeys(("proxy", "url"), "proxy"),
    **dict.fromkeys(("host", "proxy_url"), "host"),
    **dict.fromkeys(("port", "proxy_port"), "port"),
    **dict.fromkeys(("protocol", "scheme", "proxy_protocol"), "protocol"),
    **dict.fromkeys(("username", "user", "proxy_username"), "username"),
    **dict.fromkeys(("password", "proxy_password"), "password"),
    **dict.fromkeys(("country", "country_code"), "country_code"),
    "city": "city",
    "provider": "provider",
    **dict.fromkeys(("monthly_cost", "cost"), "monthly_cost"),
    **dict.fromkeys(("max_requests_per_hour", "limit"), "max_requests_per_hour"),
    "allow_private": "allow_private",
}
"""What a column may be called → what is in it."""
_PLACES: Final = frozenset(("proxy", "host"))
_YES: Final = frozenset(("yes", "true", "1", "on"))
_NO: Final = frozenset(("no", "false", "0", "off"))
_NO_LIMIT: Final = "none"


@dataclass(slots=True)
class Imported(Progress):
    """How far an import is."""

    added: int = 0
    known: int = 0
    """They were, and are as they were."""


def load(desk: ProxyService, file: BinaryIO, usual: Facts, *, actor: str) -> Generator[Imported]:
    """Make the proxies of a file (plain or gzip) known; yields how far it is, the last time at the end.

    `usual` is said of those of which the file says nothing.
    """
    done = Imported()
    with desk.database.session() as connection:
        for batch in _batches(desk, file, usual, done):
            added = proxies.add_many(connection, batch, actor=actor)
            done.added += added
            done.known += len(batch) - added
            yield done
    yield done


def _batches(desk: ProxyService, file: BinaryIO, usual: Facts, done: Imported) -> Iterator[list[NewProxy]]:
    batch: list[NewProxy] = []
    table: _Table | None = None
    begun = False
    try:
        for line in _lines(file):
            done.lines += 1
            try:
                text = _text(line)
                if not text.strip() or text.lstrip().startswith("#"):
                    continue
                if not begun:
                    begun, table = True, _Table.of(text)
                    if table is not None:
                        continue
                one, facts = (parse_proxy(text), usual) if table is None else table.read(text, usual)
                batch.append(desk.sealed(one, facts))
            except (SettingsError, _BadHeader):
                raise
            except UsageError as problem:
                done.refuse(str(problem))
            if len(batch) >= BATCH:
                yield batch
                batch = []
    except Damaged as problem:
        done.stop(problem)
    if batch:
        yield batch


def _lines(file: BinaryIO) -> Iterator[bytes]:
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]
    return lines(buffered, _LONGEST_LINE)


def _text(line: bytes) -> str:
    if len(line) == _LONGEST_LINE:
        raise UsageError("The line is too long.")
    try:
        return line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("The line is no UTF-8 text.") from None


class _Table:
    """A file whose first line names its columns. A row is one line."""

    def __init__(self, delimiter: str, columns: Sequence[str]) -> None:
        self._delimiter = delimiter
        self._columns = columns

    @classmethod
    def of(cls, header: str) -> "_Table | None":
        """The table that begins so; None: it is none. Raises UsageError for a column that is not known: it may be a slip."""
        delimiter = next((one for one in ",;\t" if one in header), ",")
        names = [name.strip().lower() for name in _cells(header, delimiter)]
        columns = [_NAMES.get(name) for name in names]
        if not _PLACES.intersection(columns):
            return None
        known = [name for name in columns if name is not None]
        if len(known) < len(columns):
            raise _BadHeader(
                f"Column {columns.index(None) + 1} is not one of: {', '.join(dict.fromkeys(_NAMES.values()))}."
            )
        return cls(delimiter, known)

    def read(self, line: str, usual: Facts) -> tuple[ParsedProxy, Facts]:
        cells = _cells(line, self._delimiter)
        if len(cells) > len(self._columns):
            raise UsageError("The line has more columns than the first one names.")
        row = dict(zip(self._columns, cells, strict=False))
        row = {name: cell if name == "password" else cell.strip() for name, cell in row.items() if cell.strip()}
        return _server(row), _facts(row, usual)


class _BadHeader(UsageError):
    """The first line of a table cannot be meant, so the others cannot be read."""


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True), [])
    except csv.Error:
        raise UsageError("The line is no CSV: a quotation mark is missing.") from None


def _server(row: Mapping[str, str]) -> ParsedProxy:
    username, password = row.get("username", ""), row.get("password", "")
    if "proxy" in row:
        whole = parse_proxy(row["proxy"])
        server = whole.server
        login = (username or server.username or "", password or whole.password or "")
        return make_proxy(server.protocol, server.host, server.port, *login)
    port = row.get("port", "")
    if not (port.isascii() and port.isdigit() and len(port) <= 5) or "host" not in row:
        raise UsageError("A proxy has a host and a port, which is a number.")
    return make_proxy(parse_protocol(row.get("protocol", Protocol.HTTP)), row["host"], int(port), username, password)


def _facts(row: Mapping[str, str], usual: Facts) -> Facts:
    said: dict[str, object] = {name: row[name] for name in ("city", "provider") if name in row}
    if "country_code" in row:
        said["country_code"] = row["country_code"].upper()
    if "monthly_cost" in row:
        said["monthly_cost"] = cost(row["monthly_cost"])
    if "max_requests_per_hour" in row:
        said["max_requests_per_hour"] = limit(row["max_requests_per_hour"])
    if "allow_private" in row:
        word = row["allow_private"].lower()
        if word not in _YES | _NO:
            raise UsageError("allow_private is yes or no.")
        said["allow_private"] = word in _YES
    return replace(usual, **said)  # type: ignore[arg-type]


def cost(text: str) -> Decimal:
    """What a proxy costs a month, as people write it. Raises UsageError."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise UsageError("A monthly cost is a number such as 12.50.") from None


def limit(text: str) -> int | None:
    """How many requests an hour a proxy bears, as people write it; None: any number. Raises UsageError."""
    if text.lower() == _NO_LIMIT:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise UsageError(f"A limit is a whole number of requests an hour, or {_NO_LIMIT}.")
    return int(text)
