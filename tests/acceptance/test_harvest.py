"""Images and other files of whole documentation trees: each is as it is on disk, and each file that is not stored has a reason."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.acceptance import nginx, on_disk
from tests.acceptance.holdfast import Holdfast
from tests.acceptance.on_disk import DOCUMENTS, IMAGES, PAGES, Tree
from tests.acceptance.requirements import HARVESTED

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("tree", HARVESTED)
def test_images_and_documents_are_those_on_disk(
    tree: str, holdfast: Holdfast, tmp_path: Path, report: Callable[[str], None]
) -> None:
    disk = Tree.read(HARVESTED[tree][0])
    with nginx.served(tmp_path / "nginx", {"_": nginx.static(disk.root)}) as server:
        crawled = holdfast.crawl(server.url(), "--images", "--types", "all")
        requests = server.requests()
    exported = holdfast("export", "images", "pictures")
    assert (crawled.code, exported.code) == (0, 0), crawled.said + exported.said

    shown = {(page, image) for page, image in disk.shown if disk.file(image) is not None}
    expected = {(page, hash_of(disk, image)) for page, image in shown}
    rows = pq.read_table(holdfast.folder / "pictures" / "images.parquet").to_pylist()
    stored = {(path_of(row["page_url"]), row["sha256"]) for row in rows}
    assert stored == expected, f"{len(stored - expected)} too many, {len(expected - stored)} missing"
    files = [file for file in (holdfast.folder / "pictures" / "files").rglob("*.*") if file.is_file()]
    assert sorted(map(on_disk.sha256, files)) == sorted({image for _, image in expected})

    documents = {path: file for path, file in disk.linked.items() if file.suffix in DOCUMENTS}
    taken = archived(holdfast)
    of_documents = {path: digest for path, digest in taken.items() if path not in disk.pages}
    assert of_documents == {path: on_disk.sha256(file) for path, file in documents.items()}
    pages = {path: digest for path, digest in taken.items() if path in disk.pages}
    assert set(pages) == set(disk.pages)
    assert all(digest == on_disk.sha256(file) for path, digest in pages.items() if (file := disk.pages[path]))

    reasons = Counter(reason(disk, file, set(documents.values())) for file in disk.files())
    kinds = Counter(file.suffix for file in documents.values())
    asked = Counter(unquote(request.path) for request in requests)
    found = ", ".join(f"{number} {suffix}" for suffix, number in sorted(kinds.items())) or "none"
    images = f"{len({image for _, image in shown})} URLs, {len(files)} different files"
    lines = [
        f"{tree}: {len(list(disk.files()))} files on disk, {len(requests)} requests",
        f"  pages: {len(pages)} of {len(disk.pages)}",
        f"  images: {images}; {len(stored)} of {len(expected)} pairs of page and file",
        f"  documents: {len(of_documents)} of {len(documents)} ({found})",
        "  every file on disk:",
        *(f"    {number:>5}  {why}" for why, number in sorted(reasons.items())),
        f"the last lines of `holdfast crawl`:\n{crawled.said.strip()}",
    ]
    report("\n".join(lines))
    assert not [why for why in reasons if why.startswith("NOT EXPLAINED")]
    assert max(asked.values()) == 1
    holdfast.verify()


def hash_of(disk: Tree, path: str) -> str:
    """The hash of the file at a path. Before: there is one."""
    file = disk.file(path)
    assert file is not None
    return on_disk.sha256(file)


def path_of(url: str) -> str:
    """The decoded path of a URL."""
    return unquote(urlsplit(url).path)


def archived(holdfast: Holdfast) -> dict[str, str]:
    """The hash of each page and document in the archive, by path; read by warcio."""
    bodies, places = dict[str, str](), dict[tuple[str, int], str]()
    folder = holdfast.folder / ".holdfast" / "archive"
    rows = [row for row in holdfast.exported("pages") if row["outcome"] == "ok"]
    for segment in {row["archive_segment"] for row in rows}:
        with (folder / segment).open("rb") as file:
            records = ArchiveIterator(file)
            for record in records:
                identity = record.rec_headers.get_header("WARC-Record-ID")
                if record.rec_type == "response":
                    bodies[identity] = hashlib.sha256(record.content_stream().read()).hexdigest()
                elif record.rec_type == "revisit":
                    identity = record.rec_headers.get_header("WARC-Refers-To")
                places[segment, records.get_record_offset()] = identity
    return {path_of(row["url"]): bodies[places[row["archive_segment"], row["archive_offset"]]] for row in rows}


def reason(disk: Tree, file: Path, documents: set[Path]) -> str:
    """Where a file of the folder is after the crawl, or why it is not stored: from the files alone."""
    path = f"/{os.path.relpath(file, disk.root)}"
    of_pages = {each for each in disk.pages.values() if each is not None}
    shown = {image for _, image in disk.shown}
    if file in of_pages:
        return "stored: a page"
    if path in shown:
        return "stored: an image that a page shows"
    if file in documents:
        return f"stored: a document that a page links to: {file.suffix}"
    if file in disk.loaded:
        return f"not stored: only pages' style sheets, scripts and metadata name it: {file.suffix}"
    if path in disk.linked and file.suffix in IMAGES:
        return f"not stored: an image that pages link to and none shows: {file.suffix}"
    if path in disk.linked:
        return f"not stored: of a type that is not taken: {file.suffix or 'no suffix'}"
    if file.suffix in PAGES:
        return f"NOT EXPLAINED: {path}" if path in disk.pages else "not stored: a page to which nothing links"
    return f"not stored: no page that links reach names it: {file.suffix or 'no suffix'}"
