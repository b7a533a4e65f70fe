"""The lines of a file that asks for tasks, of any length.

The rule: memory does not grow with the file. What is no text at all is refused before its first line; a line that is none is for the
reader of lines to refuse.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final

from holdfast.errors import HoldfastError, UsageError

LONGEST_LINE: Final = 64 * 1024

_PACKED: Final = {
    b"\x1f\x8b": "gzip -dc",
    b"PK\x03\x04": "unzip -p",
    b"BZh": "bzip2 -dc",
    b"\xfd7zXZ": "xz -dc",
    b"\x28\xb5\x2f\xfd": "zstd -dc",
}
"""What people have instead of text, by its first bytes, and what makes text of it."""


def lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; one that never ends is cut, so it is bad but harmless."""
    number = 0
    try:
        while line := file.readline(LONGEST_LINE):
            if not number:
                _check_text(line)
            number += 1
            cut = line
            while len(cut) == LONGEST_LINE and not cut.endswith(b"\n"):
                cut = file.readline(LONGEST_LINE)
            yield line
    except OSError as problem:
        raise HoldfastError(
            f"Reading stopped after line {number}: {problem.strerror or problem}. The same command adds what is missing."
        ) from problem


def _check_text(head: bytes) -> None:
    for magic, unpack in _PACKED.items():
        if head.startswith(magic):
            raise UsageError(f"The file is packed; unpack it first: `{unpack} FILE | holdfast tasks add --file -`.")
    if b"\0" in head:
        raise UsageError("The file is not UTF-8 text; it takes a URL or a domain a line.")
