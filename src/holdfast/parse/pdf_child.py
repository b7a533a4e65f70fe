"""The child process that reads PDFs: `python -m holdfast.parse.pdf_child`.

Owns reading, by pypdf. The rule: pages are read until the time that the request gives is used up, and what was read by then is the answer;
`parse/child_loop` limits time and memory.
"""

import io
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from pypdf import PdfReader, overwrite_configuration

from holdfast.parse.child_loop import serve
from holdfast.parse.html import MAX_DESCRIPTION, MAX_TITLE
from holdfast.parse.html_tokens import collapse_whitespace, select_links
from holdfast.parse.priority import lower_priority

NICE: Final = 10
"""The niceness of the process, so that fetching goes first."""
MEMORY_LIMIT: Final = 768 << 20
"""Bytes of address space; a manual of 400 pages needs a tenth of it."""
MAX_TEXT: Final = 5_000_000
"""Characters of the text of a PDF."""
MAX_UNPACKED: Final = 50_000_000
"""Bytes to which a stream of a PDF may be unpacked."""
MAX_OPERATIONS: Final = 500_000
"""Operators and operands of a page; a page of text has some thousands, a map millions."""
MAX_ANNOTATIONS: Final = 100_000
"""Annotations of all pages that are searched for links."""
_MAX_PROBLEM: Final = 200
_MAX_LANGUAGE: Final = 35


def main() -> None:
    """Serve requests. Before: nothing. After: standard input has ended, and with it this process."""
    lower_priority(NICE)
    logging.disable()
    overwrite_configuration(
        zlib_maximum_output_length=MAX_UNPACKED,
        lzw_maximum_output_length=MAX_UNPACKED,
        run_length_maximum_output_length=MAX_UNPACKED,
        array_based_stream_maximum_output_length=MAX_UNPACKED,
        stream_parsing_work_maximum_count=MAX_OPERATIONS,
        jbig2dec_binary=None,  # no other program is run
        disable_legacy_handling=True,
    )
    serve(handle, memory=MEMORY_LIMIT)


def handle(body: bytes, request: dict[str, Any]) -> dict[str, Any]:
    """Read a PDF: title, subject, language, the URLs that it links to, and with `text` in the request its text. `problem` of the answer
    says what could not be read."""
    ends = time.monotonic() + request["seconds"]
    try:
        reader = PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "the PDF is encrypted, and needs a password"}
        reader.get_num_pages()
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 — broken PDFs raise exceptions of every kind
        return {"problem": f"the PDF is damaged ({_describe(problem)})"}
    links = select_links(_links(reader, ends), request["links_per_page"])
    found: dict[str, Any] = {"links": links.kept, "links_cut": links.cut, "links_found": links.found()}
    found |= _metadata(reader)
    if request["text"]:
        found["text"], found["problem"] = _text(reader, ends)
    return found


def _metadata(reader: PdfReader) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, read, limit in (
        ("title", lambda: reader.metadata and reader.metadata.title, MAX_TITLE),
        ("description", lambda: reader.metadata and reader.metadata.subject, MAX_DESCRIPTION),
        ("content_language", lambda: reader.root_object.get("/Lang"), _MAX_LANGUAGE),
    ):
        with suppress(Exception):  # broken metadata is no reason to refuse the text
            value = read()
            found[name] = collapse_whitespace(_clean(str(value)))[:limit] or None if value else None
    return found


def _links(reader: PdfReader, ends: float) -> Iterator[tuple[str, None]]:
    """The URLs of all annotations, until the time is used up."""
    searched = 0
    for number in range(reader.get_num_pages()):
        if time.monotonic() > ends or searched > MAX_ANNOTATIONS:
            return
        with suppress(Exception):  # a broken annotation costs the links of its page
            for annotation in reader.pages[number].get("/Annots") or ():
                searched += 1
                action = annotation.get_object().get("/A")
                address = action and action.get_object().get("/URI")
                if address:
                    href = address.decode("utf-8", "replace") if isinstance(address, bytes) else str(address)
                    yield _clean(href), None


def _text(reader: PdfReader, ends: float) -> tuple[str, str | None]:
    """The text of all pages, and what could not be read."""
    total = reader.get_num_pages()
    texts: list[str] = []
    size, broken, reason = 0, 0, ""
    for number in range(total):
        if time.monotonic() > ends:
            return " ".join(texts), f"only {number:,} of the {total:,} pages of the PDF were read in time"
        if size > MAX_TEXT:
            return " ".join(texts)[:MAX_TEXT], f"only the first {MAX_TEXT:,} characters of the PDF were read"
        try:
            text = collapse_whitespace(_clean(reader.pages[number].extract_text()))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 — as above
            broken += 1
            reason = reason or _describe(error)
            continue
        texts.append(text)
        size += len(text)
    problem = f"{broken:,} of the {total:,} pages of the PDF cannot be read ({reason})" if broken else None
    return " ".join(filter(None, texts)), problem


def _clean(text: str) -> str:
    """Replace NUL and lone surrogates, as all text from the web."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _describe(problem: BaseException) -> str:
    """What pypdf says is wrong, in one line."""
    return collapse_whitespace(_clean(str(problem)))[:_MAX_PROBLEM].rstrip(".") or type(problem).__name__


if __name__ == "__main__":
    main()
