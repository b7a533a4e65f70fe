"""What a line of a seed file means.

The rule: a line is a seed, nothing (blank, comment, header), or a BadUrl; it never stops the file.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.errors import BadUrl
from holdfast.model.domain import Seed
from holdfast.model.host import canonical_domain, parent_domain
from holdfast.model.url import DEFAULT_RULES, UrlRules, seed_url, url_key

_MAX_RANK: Final = 2**31 - 1


def make_seed(
    text: str, *, rank: int | None = None, rules: UrlRules = DEFAULT_RULES, registrable: bool = False
) -> Seed:
    """The seed that a URL or a bare domain stands for. Raises BadUrl."""
    url = seed_url(text, rules)
    domain = canonical_domain(url, registrable=registrable)
    base_url = url[: url.index("/", len("https://"))]
    return Seed(domain, parent_domain(domain), base_url, url, url_key(url), rank)


@dataclass(slots=True)
class LineReader:
    """Reads the lines of one file. Plain lines are URLs or domains; CSV lines are `rank,domain`, as Tranco publishes them, or
    have a header that names the columns, as Majestic's has."""

    rules: UrlRules = DEFAULT_RULES
    registrable: bool = False
    _rank_column: int = 0
    _domain_column: int = 1
    _first: bool = True

    def read(self, line: bytes) -> Seed | None:
        """The seed on this line; None if there is none on it. Raises BadUrl."""
        try:
            text = line.decode("utf-8-sig" if self._first else "utf-8").strip()
        except UnicodeDecodeError:
            self._first = False
            raise BadUrl("The line is not UTF-8 text.") from None
        if not text or text.startswith("#"):
            return None
        first, self._first = self._first, False
        if "," in text and not text.startswith(("http://", "https://")):
            return self._read_csv(text, header_allowed=first)
        return make_seed(text.split(" #", 1)[0].rstrip(), rules=self.rules, registrable=self.registrable)

    def _read_csv(self, text: str, *, header_allowed: bool) -> Seed | None:
        fields = [field.strip().strip('"') for field in text.split(",")]
        if header_allowed and self._is_header([field.lower() for field in fields]):
            return None
        if len(fields) <= max(self._domain_column, self._rank_column):
            raise BadUrl(
                f"The line has {len(fields)} columns; the domain should be in column {self._domain_column + 1}."
            )
        rank = fields[self._rank_column]
        if not (
            rank.isascii() and rank.isdigit() and 0 < len(rank) <= len(str(_MAX_RANK)) and 0 < int(rank) <= _MAX_RANK
        ):
            raise BadUrl(f"{rank[:40]!r} is not a rank; a CSV line is `rank,domain`.")
        return make_seed(fields[self._domain_column], rank=int(rank), rules=self.rules, registrable=self.registrable)

    def _is_header(self, names: list[str]) -> bool:
        if "domain" not in names:
            return False
        self._domain_column = names.index("domain")
        ranks = [i for i, name in enumerate(names) if name in {"rank", "globalrank", "global_rank"}]
        self._rank_column = ranks[0] if ranks else 0
        return True
