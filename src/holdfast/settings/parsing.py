"""Settings of the parse phase."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from holdfast.settings.duration import Duration
from holdfast.settings.kinds import INT4, ONE_DAY, Count, Group
from holdfast.settings.kinds import folder as a_folder


class Parsing(Group):
    """How parsers read the pages of tasks and crawls, in processes of their own."""

    processes: Count = Field(default=2, ge=1, le=1000, description="Parsers that run at the same time.")
    timeout: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(seconds=0.1),
        le=ONE_DAY,
        description="The longest that a parser may take for one page; then it is killed.",
    )
    memory: Count = Field(
        default=1 << 30,
        ge=128 << 20,
        le=INT4 * 64,
        description="Bytes of address space that a parser's process may have.",
    )
    items_per_page: Count = Field(
        default=1_000, ge=1, le=10_000, description="The most items that a parser may find on one page of a crawl."
    )
    item_bytes: Count = Field(
        default=256 * 1024, ge=100, le=1 << 20, description="The most bytes that one item may have as JSON."
    )
    attempts: Count = Field(
        default=2,
        ge=1,
        le=100,
        description="How often a page of a crawl is parsed whose parser hangs, dies or needs too much memory.",
    )
    buffer: Count = Field(
        default=64 << 20,
        ge=0,
        le=INT4 * 64,
        description="Bytes of pages that a worker keeps in memory for its parsers; pages beyond are parsed later, from the archive.",
    )
    folder: Annotated[Path | None, BeforeValidator(a_folder)] = Field(
        default=None,
        description="A folder of parsers, a Python file each, the name of the file is that of the parser; not set = none.",
    )
