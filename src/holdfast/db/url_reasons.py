"""SQL of the codes of URLs' reasons (`model/url_reason`)."""

from typing import Final

from holdfast.model.url_reason import FAULT, FAULT_TEXT


def code(row: str) -> str:
    """An expression for the code of the reason of a row of `url_frontier`."""
    return f"replace(split_part({row}.reason, ':', 1), '{FAULT_TEXT}', '{FAULT}')"


CODE: Final = code("f")
