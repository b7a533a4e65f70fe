"""Parsing of prices as shops write them: "1.234,56 €", "Rs. 1,23,456", "CHF 1'299.-".

Owns the meaning of separators and currency signs. The rule: an ambiguous price is parsed as shops mean it (three digits after the only
separator are thousands, unless the currency has three decimals). A text without a price gives None, and so does a grouping of digits
that no shop uses, since a wrong price is worse than none.
"""

import re
import unicodedata
from decimal import Decimal
from typing import Final, NamedTuple

from holdfast.model.parse_result import CURRENCIES, MAX_DECIMALS, MAX_PRICE

_MAX_LENGTH: Final = 200
"""Characters: a longer text is prose that contains a number."""
_THREE_DECIMALS: Final = frozenset({"BHD", "JOD", "KWD", "LYD", "OMR", "TND"})
"""By practice, not by ISO 4217: nothing costs less than a hundred Iraqi dinars, so "25.000 IQD" are thousands."""

# Longer signs match first: "A$" is not "$". A sign that several countries share stands for the most common one.
_SIGNS: Final = {
    "US$": "USD", "U$S": "USD", "CA$": "CAD", "C$": "CAD", "AU$": "AUD", "A$": "AUD", "NZ$": "NZD", "HK$": "HKD", "NT$": "TWD",
    "MX$": "MXN", "CN¥": "CNY", "S$": "SGD", "R$": "BRL", "$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "￥": "JPY", "円": "JPY",
    "元": "CNY", "₹": "INR", "₽": "RUB", "₩": "KRW", "원": "KRW", "₺": "TRY", "₫": "VND", "₪": "ILS", "₴": "UAH", "฿": "THB",
    "₦": "NGN", "₱": "PHP", "₸": "KZT", "₾": "GEL", "₲": "PYG", "₡": "CRC",
    "₵": "GHS", "৳": "BDT", "؋": "AFN", "֏": "AMD", "₼": "AZN", "៛": "KHR", "₭": "LAK", "₮": "MNT", "¢": "USD",
    "ر.س": "SAR", "د.إ": "AED", "د.ك": "KWD", "د.ب": "BHD", "ر.ع": "OMR", "د.ت": "TND", "د.أ": "JOD", "د.ل": "LYD", "ل.د": "LYD",
    "د.ع": "IQD", "ع.د": "IQD", "ر.ق": "QAR", "ج.م": "EGP", "د.ج": "DZD", "د.م": "MAD",
}  # fmt: skip
_WORDS: Final = {
    "kr": "SEK", "kr.": "DKK", "rs": "INR", "rs.": "INR", "zł": "PLN", "zl": "PLN", "kč": "CZK", "kc": "CZK", "ft": "HUF", "lei": "RON",
    "лв": "BGN", "лв.": "BGN", "руб": "RUB", "руб.": "RUB", "р.": "RUB", "грн": "UAH", "грн.": "UAH", "тг": "KZT", "din": "RSD",  # noqa: RUF001
    "din.": "RSD", "tl": "TRY", "rp": "IDR", "rp.": "IDR", "rm": "MYR", "fr.": "CHF", "sfr.": "CHF", "euro": "EUR", "eur": "EUR",
    "р": "RUB", "рублей": "RUB", "рубля": "RUB", "kd": "KWD", "bd": "BHD", "jd": "JOD", "dt": "TND", "ld": "LYD", "lek": "ALL",  # noqa: RUF001
    "nu.": "BTN", "fbu": "BIF", "fdj": "DJF", "nfk": "ERN", "mk": "MWK", "b/.": "PAB", "tsh": "TZS", "ush": "UGX", "vt": "VUV",
    "zk": "ZMW", "fg": "GNF", "dinara": "RSD", "đ": "VND", "र": "INR", "جنيه": "EGP", "درهم": "AED", "ريال": "SAR", "ریال": "IRR",
    "usd": "USD", "gbp": "GBP", "chf": "CHF", "pln": "PLN", "czk": "CZK", "sek": "SEK", "nok": "NOK", "dkk": "DKK", "huf": "HUF",
    "dollars": "USD", "s/": "PEN", "s/.": "PEN", "dh": "MAD", "dhs": "AED", "ksh": "KES", "kn": "HRK", "rmb": "CNY",
}  # fmt: skip
# Only next to a number: ALL and TOP are also words.
_CODE: Final = re.compile(r"(?<![A-Za-z])([A-Z]{3})[^\w.]{0,3}(?=[.,]?\d)|\d[^\w]{0,3}([A-Z]{3})(?![A-Za-z])")
_WORD: Final = re.compile(r"[^\W\d_]+[./]*", re.UNICODE)
_SIGN: Final = re.compile("|".join(re.escape(sign) for sign in sorted(_SIGNS, key=len, reverse=True)))
_APOSTROPHES: Final = str.maketrans(dict.fromkeys("\u2019\u2018\u02bc`\u00b4\u066c", "'") | {"\u066b": "."})
_DATE: Final = re.compile(
    r"(?<![\d.,])(?:(?:0?[1-9]|[12]\d|3[01])([./-])(?:0?[1-9]|1[0-2])\1(?:19|20)\d\d|(?:19|20)\d\d-(?:0[1-9]|1[0-2])-[0-3]\d)(?![\d,])"
)
_WHOLE: Final = r"(?<![\d.,])(\d+|\d{1,3}(?:[., ']\d{3})+)"
# "8. 94" and "1.837, 32", but not a list such as "10, 20, 30".
_SPLIT: Final = re.compile(_WHOLE + r"([.,]) (\d\d)(?!\d|[.,] ?\d)")
# "35€ 99" and "35€99", at the end of the text or of a word; "€5 €10" are two prices.
_SIGN_BETWEEN: Final = re.compile(
    r"(?<!€)(?<!€ )" + _WHOLE + r"(?: € |€ )(\d\d)(?=\W*\Z)|(?<!€)(?<!€ )" + _WHOLE + r"€(\d\d)(?!\w|[.,]\d)"
)
# Groups of digits with one separator between each; a space only before three digits. Then a dash in place of cents.
_NUMBER: Final = re.compile(
    r"(?<!\d)(?<!\d[.,])(?:(-|\u2212)\s?)?((?:(?:(?<![\w.,])|(?<=[^\w.,][.,]))[.,])?\d+(?:(?:[.,']| (?=\d{3}(?!\d)))\d+)*)"
    r"(?:[.,:]?[-\u2013\u2014]{1,2}(?!\s?\d))?(\s?%)?"
)
_FREE: Final = frozenset({"free", "gratis", "kostenlos", "gratuit", "bezpłatnie", "無料"})


class Money(NamedTuple):
    """An amount, and its currency (ISO 4217) if known."""

    amount: Decimal
    currency: str | None = None


def parse_price(text: str, currency: str | None = None) -> Money | None:
    """Parse the first price in `text`; of a range, the first. `currency` is known from elsewhere, and takes precedence over the text."""
    text = unicodedata.normalize("NFKC", text.replace("\u00b4", "'")).translate(_APOSTROPHES)
    text = " ".join(text.split())
    if not text or len(text) > _MAX_LENGTH:
        return None
    known_currency = currency or parse_currency(text)
    text = _SIGN_BETWEEN.sub(r"\1\3.\2\4 €", _SPLIT.sub(r"\1\2\3", _DATE.sub(" ", text)))
    number = next((found for found in _NUMBER.finditer(text) if not found[3]), None)
    if number is None:
        return Money(Decimal(0), known_currency) if text.casefold().strip(" .!") in _FREE else None
    if number[1]:
        return None  # a negative number is a discount, not a price
    amount = _amount(number[2], known_currency)
    if amount is None:
        return None
    if "\u00a2" in text and currency is None and "." not in number[2]:
        amount /= 100
    return Money(amount, known_currency) if amount < MAX_PRICE else None


def parse_currency(text: str | None) -> str | None:
    """Return the currency that `text` names: by its ISO code, else by a sign, else by a word."""
    if not text:
        return None
    text = text[:_MAX_LENGTH].strip()
    if text.upper() in CURRENCIES:
        return text.upper()
    for before, after in _CODE.findall(text):
        if (code := before or after) in CURRENCIES:
            return str(code)
    if sign := _SIGN.search(text):
        return _SIGNS[sign[0]]
    words = _WORD.findall(text.casefold())
    return next((found for word in words if (found := _WORDS.get(word) or _WORDS.get(word.rstrip("./")))), None)


def parse_number(text: str) -> Decimal | None:
    """Parse a number that is not a price, such as a rating: its only separator is the decimal one."""
    found = re.search(r"\d+(?:[.,]\d+)?", text[:_MAX_LENGTH])
    number = _to_decimal(found[0].replace(",", ".")) if found else None
    return number if number is not None and number < MAX_PRICE else None


def _amount(digits: str, currency: str | None) -> Decimal | None:
    """Return the number that groups of digits stand for; None if no shop groups them like that ("15.08.17")."""
    if digits[0] in ".," and len(re.findall(r"[.,' ]", digits)) > 1:
        digits = digits[1:]  # "$.750.30": the first separator belongs to the sign
    parts = re.split(r"[.,' ]", digits)
    if len(parts) == 1:
        return _to_decimal(digits)
    separators = re.findall(r"[.,' ]", digits)
    last = separators[-1]
    if len(separators) == 1 and last in ".,":
        whole, rest = parts
        three = len(rest) == 3 and 0 < len(whole) <= 3 and not whole.startswith("0")
        grouped = three and currency not in _THREE_DECIMALS
    else:
        # A decimal separator occurs once, unless it also separates groups: "1.298.00".
        grouped = last in "' " or (separators.count(last) > 1 and len(parts[-1]) > 2)
    groups = parts if grouped else parts[:-1]
    if any(not 2 <= len(group) <= 3 for group in groups[1:]) or (len(groups) > 1 and len(groups[-1]) != 3):
        return None
    return _to_decimal("".join(groups) + ("" if grouped else "." + parts[-1]))


def _to_decimal(number: str) -> Decimal:
    """Convert to a Decimal, truncated to MAX_DECIMALS."""
    whole, _, decimals = number.partition(".")
    return Decimal(f"{whole}.{decimals[:MAX_DECIMALS]}" if decimals else whole)
