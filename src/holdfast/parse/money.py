"""Prices as shops write them: "1.234,56 €", "Rs. 1,23,456", "CHF 1'299.-".

Owns what separators and symbols mean. The rule: a price that can be read in two ways is read as shops mean it (three digits after the only
separator are thousands, unless the currency has three decimals); what is no price is None.
"""

import re
import unicodedata
from decimal import Decimal
from typing import Final, NamedTuple

from holdfast.model.parsed import CURRENCIES, MAX_DECIMALS, MAX_PRICE

_LONGEST: Final = 200
"""Characters: what is longer is a text with a number in it."""
_THREE_DECIMALS: Final = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})

# Longer ones first: "A$" is not "$". Signs that several countries share mean the one that most pages mean.
_SIGNS: Final = {
    "US$": "USD", "U$S": "USD", "CA$": "CAD", "C$": "CAD", "AU$": "AUD", "A$": "AUD", "NZ$": "NZD", "HK$": "HKD", "NT$": "TWD",
    "MX$": "MXN", "CN¥": "CNY", "S$": "SGD", "R$": "BRL", "$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "￥": "JPY", "円": "JPY",
    "元": "CNY", "₹": "INR", "₽": "RUB", "₩": "KRW", "원": "KRW", "₺": "TRY", "₫": "VND", "₪": "ILS", "₴": "UAH", "฿": "THB",
    "₦": "NGN", "₱": "PHP", "₸": "KZT", "₾": "GEL", "₲": "PYG", "₡": "CRC",
    "₵": "GHS", "৳": "BDT", "﷼": "SAR", "ر.س": "SAR", "د.إ": "AED", "¢": "USD",
}  # fmt: skip
_WORDS: Final = {
    "kr": "SEK", "kr.": "DKK", "rs": "INR", "rs.": "INR", "zł": "PLN", "zl": "PLN", "kč": "CZK", "kc": "CZK", "ft": "HUF", "lei": "RON",
    "лв": "BGN", "лв.": "BGN", "руб": "RUB", "руб.": "RUB", "р.": "RUB", "грн": "UAH", "грн.": "UAH", "тг": "KZT", "din": "RSD",  # noqa: RUF001
    "din.": "RSD", "tl": "TRY", "rp": "IDR", "rp.": "IDR", "rm": "MYR", "fr.": "CHF", "sfr.": "CHF", "euro": "EUR", "eur": "EUR",
    "dollars": "USD", "s/": "PEN", "s/.": "PEN", "dh": "MAD", "dhs": "AED", "ksh": "KES", "kn": "HRK", "rmb": "CNY",
}  # fmt: skip
# Beside the number: ALL and TOP are words, too.
_CODE: Final = re.compile(r"(?<![A-Za-z])([A-Z]{3})[^\w.]{0,3}(?=[.,]?\d)|\d[^\w]{0,3}([A-Z]{3})(?![A-Za-z])")
_WORD: Final = re.compile(r"[^\W\d_]+[./]*", re.UNICODE)
_SIGN: Final = re.compile("|".join(re.escape(sign) for sign in sorted(_SIGNS, key=len, reverse=True)))
_APOSTROPHES: Final = str.maketrans(dict.fromkeys("\u2019\u2018\u02bc`\u00b4\u066c", "'") | {"\u066b": "."})
# Groups of digits with one separator between each; a space only before three digits. Then what stands for no cents.
_NUMBER: Final = re.compile(
    r"(?<!\d)(?<!\d[.,])(?:(-|\u2212)\s?)?((?:(?<![\w.,])[.,])?\d+(?:(?:[.,']| (?=\d{3}(?!\d)))\d+)*)"
    r"(?:[.,:]?[-\u2013\u2014]{1,2}(?!\s?\d))?(\s?%)?"
)
_FREE: Final = frozenset({"free", "gratis", "kostenlos", "gratuit", "bezpłatnie", "無料"})


class Money(NamedTuple):
    """An amount, and its currency where the text says one."""

    amount: Decimal
    currency: str | None = None


def read_money(text: str, currency: str | None = None) -> Money | None:
    """The first price in `text`; of a range, the lower end. `currency` is the one that is known from elsewhere, and goes first."""
    text = unicodedata.normalize("NFKC", text.replace("\u00b4", "'")).translate(_APOSTROPHES)
    text = " ".join(text.split())
    if not text or len(text) > _LONGEST:
        return None
    known = currency or read_currency(text)
    number = next((found for found in _NUMBER.finditer(text) if not found[3]), None)
    if number is None:
        return Money(Decimal(0), known) if text.casefold().strip(" .!") in _FREE else None
    if number[1]:
        return None  # less than nothing is a discount, not a price
    amount = _amount(number[2], known)
    if "\u00a2" in text and currency is None and "." not in number[2]:
        amount /= 100
    return Money(amount, known) if amount < MAX_PRICE else None


def read_currency(text: str | None) -> str | None:
    """The currency that `text` names: by its code, else by a sign, else by a word."""
    if not text:
        return None
    text = text[:_LONGEST].strip()
    if text.upper() in CURRENCIES:
        return text.upper()
    for before, after in _CODE.findall(text):
        if (code := before or after) in CURRENCIES:
            return str(code)
    if sign := _SIGN.search(text):
        return _SIGNS[sign[0]]
    words = _WORD.findall(text.casefold())
    return next((found for word in words if (found := _WORDS.get(word) or _WORDS.get(word.rstrip("./")))), None)


def read_number(text: str) -> Decimal | None:
    """A number that is no price, such as a rating: one separator is the decimal one."""
    found = re.search(r"\d+(?:[.,]\d+)?", text[:_LONGEST])
    number = _exact(found[0].replace(",", ".")) if found else None
    return number if number is not None and number < MAX_PRICE else None


def _amount(digits: str, currency: str | None) -> Decimal:
    parts = re.split(r"[.,' ]", digits)
    if len(parts) == 1:
        return _exact(digits)
    separators = re.findall(r"[.,' ]", digits)
    last = separators[-1]
    if last in "' " or (len(set(separators)) < len(separators) and separators.count(last) > 1):
        grouped = True  # a decimal separator comes once
    elif len(separators) > 1:
        grouped = False
    else:
        whole, rest = parts
        three = len(rest) == 3 and 0 < len(whole) <= 3 and not whole.startswith("0")
        grouped = three and currency not in _THREE_DECIMALS
    if grouped:
        return _exact("".join(parts))
    return _exact("".join(parts[:-1]) + "." + parts[-1])


def _exact(written: str) -> Decimal:
    """As a Decimal with no more decimals than may be kept."""
    whole, _, decimals = written.partition(".")
    return Decimal(f"{whole}.{decimals[:MAX_DECIMALS]}" if decimals else whole)
