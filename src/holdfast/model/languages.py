"""Languages of pages, as far as search treats them differently."""

from typing import Final

STEMMED: Final = {
    "ar": "arabic",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
"""Languages whose words are reduced to stems, by ISO 639-1 code."""
CJK: Final = frozenset({"ja", "ko", "th", "zh"})
"""Languages that are written without blanks between words, or nearly so: pairs of characters are indexed in place of words."""
_SAME: Final = {"nb": "no", "nn": "no"}


def language_code(tag: str | None) -> str | None:
    """The code of a language tag: `en` of `en-GB`; None: it has none."""
    code = (tag or "").lower().replace("_", "-").partition("-")[0]
    return _SAME.get(code, code) if code.isascii() and code.isalpha() and 2 <= len(code) <= 3 else None
