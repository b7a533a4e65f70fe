"""URLs and hosts against the web-platform-tests; the cases stay in their folder, which nobody here wrote."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadUrl
from holdfast.model.domain_name import host_to_ascii
from holdfast.model.url import join, parse_url

FOLDER = Path(os.environ.get("HOLDFAST_CONFORMANCE") or Path(__file__).parents[2].parent / "shared" / "conformance")

pytestmark = pytest.mark.skipif(
    not (FOLDER / "url").is_dir(),
    reason=f"there are no URL cases in {FOLDER}; set HOLDFAST_CONFORMANCE to their folder",
)


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of a file; strings between them are comments."""
    found = json.loads((FOLDER / "url" / name).read_text("utf-8"))
    return [case for case in found if isinstance(case, dict)]


def is_http(text: str | None) -> bool:
    return text is not None and text.strip().lower().startswith(("http:", "https:"))


def concerns_us(case: dict[str, Any]) -> bool:
    """Whether a case is about http(s): its result is, or what must be refused was."""
    return is_http(case.get("href")) or (
        bool(case.get("failure")) and (is_http(case["input"]) or is_http(case.get("base")))
    )


def read(text: str, base: str | None) -> str | None:
    try:
        return parse_url(text).href if base is None else join(base, text)
    except BadUrl:
        return None


def to_ascii(host: str) -> str | None:
    try:
        return host_to_ascii(host)
    except BadUrl:
        return None


def test_every_http_url_and_every_host(figure: Callable[[str], None]) -> None:
    urls = [case for case in cases("urltestdata.json") if concerns_us(case)]
    hosts = cases("toascii.json")
    wrong_urls = [case for case in urls if read(case["input"], case.get("base")) != case.get("href")]
    wrong_hosts = [case for case in hosts if to_ascii(case["input"]) != case["output"]]
    passed = (
        f"url {len(urls) - len(wrong_urls)} of {len(urls)}, toascii {len(hosts) - len(wrong_hosts)} of {len(hosts)}"
    )
    figure(f"conformance, web-platform-tests: {passed}")
    assert urls
    assert hosts
    assert wrong_urls == []
    assert wrong_hosts == []
