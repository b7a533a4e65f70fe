"""Documents for `benchmarks/search.py`: texts in ten languages whose words are as frequent as in real ones, written by COPY.

The rule: everything follows from the number of a document. The word of rank n is n times rarer than the first (Zipf), a language has
tens of thousands of words with its own endings, and each document has one word that no other has.
"""

import hashlib
import multiprocessing
import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg

from holdfast.crawler.document_rows import document_row
from holdfast.db.connection import Database

DOMAINS: Final = 20_000
JOBS: Final = 10
CHUNK: Final = 2_000
"""Documents that one transaction writes."""
KINDS: Final = ("article", "article", "article", "product", "forum", "listing")
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SLOTS: Final = 1_000_000
"""Words that a text of a language is drawn from; a rare one is there once."""
_MENU: Final = "Home About Contact Privacy"


class Language(NamedTuple):
    """What the words of a language are made of."""

    share: int
    """Of a hundred documents."""
    common: str
    """Its most frequent words, in their order."""
    syllables: str
    endings: str
    blank: str = " "


LANGUAGES: Final = {
    "en": Language(
        46,
        "the of and to in a is that for it as was with be by on not he his but",
        "con ter min al pre ver st ra lo net wor k ing er dis play re port for ma gar den",
        "s ing ed ly er ment ness",
    ),
    "de": Language(
        12,
        "der die und in den von zu das mit sich des auf für ist im dem nicht ein",
        "ver ge be auf schl tra ker hau stra ße wei kun den mül ler zei tung",
        "en er ung heit lich keit es",
    ),
    "fr": Language(
        9,
        "de la le et les des en un du une que est pour qui dans par sur",
        "con pré mai son tra vail jou née lu mi ère voi tu re pein",
        "er ment tion s eux ique",
    ),
    "es": Language(
        9,
        "de la que el en y a los se del las un por con no una",
        "ca sa tra ba jo me sa cor ti na ven ta luz ca mi no",
        "ar ción mente s ado oso",
    ),
    "ru": Language(
        8,
        "и в не на я быть он с что а по это она этот к но",  # noqa: RUF001
        "во да до ро га пи сь мо за пре ста ви те ль го род",  # noqa: RUF001
        "ый ого ами ение ать ов",  # noqa: RUF001
    ),
    "it": Language(
        4,
        "di e il la che in a per un del non una sono",
        "ca sa la vo ro tem po stra da lu ce vi no me",
        "are zione mente i ato oso",
    ),
    "sv": Language(
        2,
        "och i att det som en på är av för med den till",
        "hus väg tid ar be te lju s sko la var dag",
        "en ar ning het are",
    ),
    "pl": Language(
        4,
        "w i na z do się nie to że jest o",
        "dom dro ga pra ca czas świa tło wo da sz ko ła",
        "ów ami ość nie ego",
    ),
    "ja": Language(
        4,
        "の に は を た が で て と し れ さ",
        "日 本 東 京 大 学 会 社 人 時 間 電 車 天 気 水 山 川 新 聞 語 国",
        "す る い った ます",
        "",
    ),
    "zh": Language(
        2,
        "的 一 是 不 了 在 人 有 我 他",
        "中 国 北 京 大 学 公 司 时 间 天 气 水 山 新 闻 语 电 车",
        "们 性 化 者",
        "",
    ),
}


class Words:
    """The words of a language, and texts of them."""

    def __init__(self, code: str) -> None:
        self.language = LANGUAGES[code]
        self.ranked = _vocabulary(code, 1 + _SLOTS // 12)
        scale = _SLOTS / sum(1 / rank for rank in range(1, len(self.ranked) + 1))
        self._slots = [
            word
            for rank, word in enumerate(self.ranked, 1)
            for _ in range(max(1, round(scale / rank)))
        ]  # fmt: skip

    def text(self, chance: random.Random, count: int) -> str:
        """This number of words."""
        return self.language.blank.join(chance.choices(self._slots, k=count))


def _vocabulary(code: str, size: int) -> list[str]:
    """Different words, the most frequent first."""
    language, chance = LANGUAGES[code], random.Random(code)
    syllables, endings = language.syllables.split(), ["", *language.endings.split()]
    found = dict.fromkeys(language.common.split())
    while len(found) < size:
        length = chance.randint(1, 2 + len(found).bit_length() // 5)
        found["".join(chance.choices(syllables, k=length)) + chance.choice(endings)] = None
    return list(found)


def language_of(number: int) -> str:
    """The language of a document."""
    place = number * 7919 % 100
    for code, language in LANGUAGES.items():
        place -= language.share
        if place < 0:
            return code
    raise AssertionError("the shares are 100 together")


def unique_word(number: int, version: int = 0) -> str:
    """The word that only this document has."""
    return f"ref{number}x{version}"


def url_key(number: int) -> bytes:
    """The key of a document's URL."""
    return hashlib.sha256(str(number).encode()).digest()[:16]


def domain_of(number: int) -> int:
    """The domain of a document, by its number from 1: the first has a twentieth of all."""
    return 1 if number % 20 == 0 else 1 + number * 31 % DOMAINS


def job_of(number: int) -> int:
    """The job of a document: most are of the first."""
    return 1 if number % 10 else 1 + number // 10 % JOBS


def extracted(words: Words, number: int, version: int = 0) -> dict[str, Any]:
    """What the parser `markdown` would have found: 200 to 600 words in a few blocks, sometimes with a menu."""
    chance = random.Random(f"{number} {version}")
    paragraphs = [words.text(chance, chance.randint(40, 100)) for _ in range(chance.randint(4, 8))]
    paragraphs[-1] += " " + unique_word(number, version)
    title = words.text(chance, chance.randint(3, 9))
    parts = [_MENU, title, *paragraphs]
    blocks, at = [], 0
    for part in parts:
        blocks.append([at, at + len(part), at, at + len(part), zlib.crc32(part.encode())])
        at += len(part) + 2
    text = "\n\n".join(parts)
    return {
        "markdown": text, "text": text, "blocks": blocks, "headings": [[1, title, blocks[1][0], blocks[1][2]]], "title": title,
        "author": None, "published": None, "language": language_of(number), "site_name": "A site", "kind": KINDS[number % len(KINDS)],
        "words": len(text.split()), "extractor": "1",
    }  # fmt: skip


_FRONTIER: Final = """
INSERT INTO crawl_jobs (name) SELECT 'job-' || n FROM generate_series((SELECT max(id) FROM crawl_jobs) + 1, {jobs}) n;

INSERT INTO domains (domain, parent_domain, base_url, source)
SELECT name, name, 'https://' || name, 'benchmark' FROM (SELECT 'site-' || n || '.example' AS name FROM generate_series(1, {domains}) n) d;

INSERT INTO url_frontier (domain_id, job_id, url_key, url, state)
SELECT {domain}, {job}, substring(sha256(n::text::bytea) FROM 1 FOR 16), 'https://site-' || {domain} || '.example/articles/' || n, 'done'
FROM generate_series(1, {documents}) n;

INSERT INTO crawled_pages (domain_id, job_id, url_key, crawled_at, status, outcome, content_type)
SELECT {domain}, {job}, substring(sha256(n::text::bytea) FROM 1 FOR 16), now(), 200, 'ok', 'text/html'
FROM generate_series(1, {documents}) n
"""
_COPY: Final = """
COPY documents (domain_id, job_id, url_key, fetched_at, words, extractor, kind, language, title, site_name, block_hashes, block_words,
                heading_blocks, removed, counted_pages, body) FROM STDIN
"""


def fill(database: Database, documents: int, tell: Callable[[int], None]) -> None:
    """Fill a store that has the schema and nothing else."""
    sizes = {
        "documents": documents, "domains": DOMAINS, "jobs": JOBS,
        "domain": f"(CASE WHEN n % 20 = 0 THEN 1 ELSE 1 + n * 31::bigint % {DOMAINS} END)",
        "job": f"(CASE WHEN n % 10 <> 0 THEN 1 ELSE 1 + n / 10 % {JOBS} END)",
    }  # fmt: skip
    with database.session() as connection:
        connection.execute("SET synchronous_commit = off")
        for statement in _FRONTIER.format(**sizes).split(";\n\n"):
            connection.execute(statement.encode())
    starts = range(1, documents + 1, CHUNK)
    done = 0
    with multiprocessing.Pool(2, _prepare, (database, documents)) as pool:
        for count in pool.imap_unordered(_write, starts):
            done += count
            tell(done)
    with database.session() as connection:
        connection.execute("VACUUM (ANALYZE)")


_worker: dict[str, Any] = {}


def _prepare(database: Database, documents: int) -> None:
    _worker.update(words={code: Words(code) for code in LANGUAGES}, connection=database.connect(), documents=documents)


def _write(first: int) -> int:
    """One transaction."""
    connection: psycopg.Connection = _worker["connection"]
    numbers = range(first, min(first + CHUNK, _worker["documents"] + 1))
    with connection.transaction(), connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        for row in _rows(_worker["words"], numbers):
            copy.write_row(row)
    return len(numbers)


def _rows(words: dict[str, Words], numbers: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    for number in numbers:
        row = document_row(extracted(words[language_of(number)], number))
        assert row is not None
        yield (
            domain_of(number), job_of(number), url_key(number), BEGIN + timedelta(minutes=number % 400_000), row.words, row.extractor,
            row.kind, row.language, row.title, row.site_name, row.block_hashes, row.block_words, row.heading_blocks,
            [0] if number % 2 else [], 100, row.body,
        )  # fmt: skip


def change(connection: psycopg.Connection, words: dict[str, Words], number: int, version: int) -> None:
    """Write a document again, with other words."""
    row = document_row(extracted(words[language_of(number)], number, version))
    assert row is not None
    key = domain_of(number), job_of(number), url_key(number)
    connection.execute(
        "UPDATE documents SET changed = pg_current_xact_id(), extracted_at = clock_timestamp(), title = %s, body = %s, block_hashes = %s, "
        "block_words = %s, heading_blocks = %s WHERE domain_id = %s AND job_id = %s AND url_key = %s",
        (row.title, row.body, row.block_hashes, row.block_words, row.heading_blocks, *key),
    )


def keep_changing(database: Database, documents: int, rate: float, begun: Any, stop: Any) -> None:
    """Change random documents at a rate, in transactions of ten, until `stop` is set. For a process of its own."""
    words = {code: Words(code) for code in LANGUAGES}
    chance = random.Random(1)
    with database.session() as connection:
        version = 1
        while not stop.is_set():
            began = time.monotonic()
            with connection.transaction():
                for _ in range(10):
                    change(connection, words, chance.randint(1, documents), version)
                    version += 1
            begun.set()
            stop.wait(max(0.0, 10 / rate - (time.monotonic() - began)))
