"""Parser of the lines of a seed file.

The rule: a line is a seed, nothing (blank, comment, header), or a BadUrl; it never stops the file.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.errors import BadUrl
from holdfast.model.domain import Seed
from holdfast.model.domain_name import domain_of_base, parent_domain
from holdfast.model.url import DEFAULT_RULES, UrlRules, has_guessed_scheme, seed_url, url_key

_MAX_RANK: Final = 2**31 - 1
_DOMAIN_COLUMNS: Final = ("domain", "origin", "url", "host", "hostname")
_RANK_COLUMNS: Final = ("globalrank", "global_rank", "rank")

_RANKED: Final = re.compile(r"([1-9][0-9]{0,8}),([^\s,\"#]+)")
_RANK: Final = re.compile(r"[0-9]{1,10}")
_COMMENT: Final = re.compile(r"\s#.*")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def make_seed(
    text: str, *, rank: int | None = None, rules: UrlRules = DEFAULT_RULES, registrable: bool = False
) -> Seed:
    """The seed of a URL or a bare domain. Raises BadUrl."""
    url = seed_url(text, rules)
    guessed = has_guessed_scheme(text) and url.startswith("https://")
    base_url = url[: url.index("/", len("https://"))]
    domain = domain_of_base(base_url, registrable=registrable)
    return Seed(domain, parent_domain(domain), base_url, url, url_key(url), rank, guessed)


@dataclass(slots=True)
class SeedLineParser:
    """Parses the lines of one file. Plain lines are URLs or domains; CSV lines are `rank,domain`, as Tranco publishes them, or follow a
    header that names the columns, as Majestic's do."""

    rules: UrlRules = DEFAULT_RULES
    registrable: bool = False
    _domain_column: int = 1
    _rank_column: int | None = 0
    _has_header: bool = False
    _started: bool = False
    """A line other than blank lines and comments was read, so that no header can follow."""

    def read(self, line: bytes) -> Seed | None:
        """The seed on this line; None if there is none. Raises BadUrl."""
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            raise BadUrl("The line is not UTF-8 text.") from None
        # Most lines of most files are like these; the full parser gives the same.
        if not self._has_header:
            if "," in text:
                if ranked := _RANKED.fullmatch(text):
                    self._started = True
                    return self._seed(ranked[2], int(ranked[1]))
            elif text and self._started and "#" not in text and text.isprintable():
                return self._seed(text, None)
        return self._read_any(text.removeprefix("\ufeff").lstrip())

    def _read_any(self, text: str) -> Seed | None:
        if not text or text.startswith("#"):
            return None
        text = _COMMENT.sub("", text)
        if _CONTROL.search(text):  # URL parsers ignore some of them, and binary files contain words between others
            raise BadUrl("The line has control characters, so it is not text.")
        started, self._started = self._started, True
        fields = [field.strip().strip('"') for field in text.split(",")]
        if not started and self._is_header([field.lower() for field in fields]):
            return None
        # A comma after a slash belongs to a URL.
        if self._has_header or (len(fields) > 1 and "/" not in fields[0]):
            return self._read_fields(fields)
        return self._seed(text, None)

    def _is_header(self, names: list[str]) -> bool:
        domains = [name for name in _DOMAIN_COLUMNS if name in names]
        if not domains:
            return False
        ranks = [name for name in _RANK_COLUMNS if name in names]
        self._domain_column = names.index(domains[0])
        self._rank_column = names.index(ranks[0]) if ranks else None
        self._has_header = True
        return True

    def _read_fields(self, fields: list[str]) -> Seed:
        if len(fields) <= max(self._domain_column, self._rank_column or 0):
            raise BadUrl(f"The line ends before column {max(self._domain_column, self._rank_column or 0) + 1}.")
        if self._rank_column is None:
            return self._seed(fields[self._domain_column], None)
        rank = fields[self._rank_column]
        if not _RANK.fullmatch(rank) or not 0 < int(rank) <= _MAX_RANK:
            raise BadUrl(f"{rank[:40]!a} is not a rank; a CSV line is `rank,domain`.")
        return self._seed(fields[self._domain_column], int(rank))

    def _seed(self, text: str, rank: int | None) -> Seed:
        return make_seed(text, rank=rank, rules=self.rules, registrable=self.registrable)
