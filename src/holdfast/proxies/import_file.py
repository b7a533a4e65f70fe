"""Import of proxies from files of any length: one per line, or CSV.

The rule: memory does not grow with the file, and a bad line is counted and reported with its number, without its content. Lines that were
read before an interruption are committed; importing the same file again adds the others.
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
from holdfast.proxies.queries.proxies import SealedProxy
from holdfast.proxies.records import ProxyOptions
from holdfast.proxies.service import ProxyService

_BATCH_SIZE: Final = 500
"""The number of proxies that are inserted in one transaction."""
_MAX_LINE: Final = 16 * 1024
_COLUMN_NAMES: Final = {
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
"""Names of columns in files, and the fields that they mean."""
_ADDRESS_COLUMNS: Final = frozenset(("proxy", "host"))
_YES: Final = frozenset(("yes", "true", "1", "on"))
_NO: Final = frozenset(("no", "false", "0", "off"))
_NO_LIMIT: Final = "none"


@dataclass(slots=True)
class Imported(Progress):
    """The progress of an import."""

    added: int = 0
    known: int = 0
    """Proxies that were known before, and are unchanged."""


def load(service: ProxyService, file: BinaryIO, defaults: ProxyOptions, *, actor: str) -> Generator[Imported]:
    """Add the proxies of a file (plain or gzip); yields the progress after each batch, and at the end.

    `defaults` are the options that the file does not state.
    """
    done = Imported()
    with service.database.session() as connection:
        for batch in _batches(service, file, defaults, done):
            added = proxies.add_many(connection, batch, actor=actor)
            done.added += added
            done.known += len(batch) - added
            yield done
    yield done


def _batches(
    service: ProxyService, file: BinaryIO, defaults: ProxyOptions, done: Imported
) -> Iterator[list[SealedProxy]]:
    batch: list[SealedProxy] = []
    table: _CsvTable | None = None
    is_first = True
    try:
        for line in _lines(file):
            done.lines += 1
            try:
                text = _text(line)
                if not text.strip() or text.lstrip().startswith("#"):
                    continue
                if is_first:
                    is_first, table = False, _CsvTable.of(text)
                    if table is not None:
                        continue
                parsed, options = (parse_proxy(text), defaults) if table is None else table.read(text, defaults)
                batch.append(service.sealed(parsed, options))
            except (SettingsError, _BadHeader):
                raise
            except UsageError as problem:
                done.refuse(str(problem))
            if len(batch) >= _BATCH_SIZE:
                yield batch
                batch = []
    except Damaged as problem:
        done.stop(problem)
    if batch:
        yield batch


def _lines(file: BinaryIO) -> Iterator[bytes]:
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]
    return lines(buffered, _MAX_LINE)


def _text(line: bytes) -> str:
    if len(line) == _MAX_LINE:
        raise UsageError("The line is too long.")
    try:
        return line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("The line is no UTF-8 text.") from None


class _CsvTable:
    """A CSV file whose first line names its columns. A row is one line."""

    def __init__(self, delimiter: str, columns: Sequence[str]) -> None:
        self._delimiter = delimiter
        self._columns = columns

    @classmethod
    def of(cls, header: str) -> "_CsvTable | None":
        """The table with this first line; None: the file is no table. Raises UsageError for an unknown column."""
        delimiter = next((one for one in ",;\t" if one in header), ",")
        names = [name.strip().lower() for name in _cells(header, delimiter)]
        columns = [_COLUMN_NAMES.get(name) for name in names]
        if not _ADDRESS_COLUMNS.intersection(columns):
            return None
        known = [name for name in columns if name is not None]
        if len(known) < len(columns):
            raise _BadHeader(
                f"Column {columns.index(None) + 1} is not one of: {', '.join(dict.fromkeys(_COLUMN_NAMES.values()))}."
            )
        return cls(delimiter, known)

    def read(self, line: str, defaults: ProxyOptions) -> tuple[ParsedProxy, ProxyOptions]:
        """Parse a row. Raises UsageError."""
        cells = _cells(line, self._delimiter)
        if len(cells) > len(self._columns):
            raise UsageError("The line has more columns than the first one names.")
        row = dict(zip(self._columns, cells, strict=False))
        row = {name: cell if name == "password" else cell.strip() for name, cell in row.items() if cell.strip()}
        return _server(row), _options(row, defaults)


class _BadHeader(UsageError):
    """The first line of a table is invalid, so that the others cannot be read."""


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


def _options(row: Mapping[str, str], defaults: ProxyOptions) -> ProxyOptions:
    stated: dict[str, object] = {name: row[name] for name in ("city", "provider") if name in row}
    if "country_code" in row:
        stated["country_code"] = row["country_code"].upper()
    if "monthly_cost" in row:
        stated["monthly_cost"] = parse_cost(row["monthly_cost"])
    if "max_requests_per_hour" in row:
        stated["max_requests_per_hour"] = parse_limit(row["max_requests_per_hour"])
    if "allow_private" in row:
        word = row["allow_private"].lower()
        if word not in _YES | _NO:
            raise UsageError("allow_private is yes or no.")
        stated["allow_private"] = word in _YES
    return replace(defaults, **stated)  # type: ignore[arg-type]


def parse_cost(text: str) -> Decimal:
    """Parse the monthly cost of a proxy. Raises UsageError."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise UsageError("A monthly cost is a number such as 12.50.") from None


def parse_limit(text: str) -> int | None:
    """Parse the limit of requests an hour of a proxy; None: it has no limit. Raises UsageError."""
    if text.lower() == _NO_LIMIT:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise UsageError(f"A limit is a whole number of requests an hour, or {_NO_LIMIT}.")
    return int(text)
