"""Prices as shops write them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.parse_result import CURRENCIES, MAX_DECIMALS, MAX_PRICE
from holdfast.parse.prices import parse_currency, parse_number, parse_price


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("1.234,56 €", "1234.56", "EUR"),
        ("US$1,299.00", "1299.00", "USD"),
        ("Rs. 1,23,456", "123456", "INR"),
        ("Rs.99/-", "99", "INR"),
        ("₹1,23,456.00", "123456.00", "INR"),
        ("1 299 kr", "1299", "SEK"),
        ("kr. 1.299,00", "1299.00", "DKK"),
        ("CHF 1'299.-", "1299", "CHF"),
        ("CHF 1\u2019299.00", "1299.00", "CHF"),
        ("SEK 1 299:-", "1299", "SEK"),
        ("¥12,800", "12800", "JPY"),
        ("３，９８０円", "3980", "JPY"),  # noqa: RUF001
        ("CN¥ 30", "30", "CNY"),
        ("12.99 - 19.99", "12.99", None),
        ("$12.99\u2013$19.99", "12.99", "USD"),
        ("1\u202f299,00\xa0€", "1299.00", "EUR"),
        ("1 299,00 zł", "1299.00", "PLN"),
        ("€ 12,-", "12", "EUR"),
        ("R$ 1.299,90", "1299.90", "BRL"),
        ("A$45", "45", "AUD"),
        ("NT$1,280", "1280", "TWD"),
        ("12.999 TL", "12999", "TRY"),
        ("Rp 150.000", "150000", "IDR"),
        ("1 299.00 руб.", "1299.00", "RUB"),  # noqa: RUF001
        ("\u0663\u0664\u066b\u0665\u0660 ر.س", "34.50", "SAR"),
        ("KWD 10.500", "10.500", "KWD"),
        ("10.500", "10500", None),
        ("0.500", "0.500", None),
        (".99", "0.99", None),
        ("99¢", "0.99", "USD"),
        ("1299.0000", "1299.0000", None),
        ("1,5", "1.5", None),
        ("1.234.567", "1234567", None),
        ("1,234,567.89", "1234567.89", None),
        ("20% off, now $15.99", "15.99", "USD"),
        ("19.99 USD/kg", "19.99", "USD"),
        ("Gratis", "0", None),
        ("0", "0", None),
        ("5.12345678", "5.123456", None),
        ("423.923 KD", "423.923", "KWD"),
        ("12.500 BD", "12.500", "BHD"),
        ("1.250,500 DT", "1250.500", "TND"),
        ("د.ك 4.750", "4.750", "KWD"),
        ("25,000 IQD", "25000", "IQD"),
        ("$.750.30", "750.30", "USD"),
        ("$..75", "0.75", "USD"),
        ("1.298.00 €", "1298.00", "EUR"),
        ("35€ 99", "35.99", "EUR"),
        ("35€99 TTC", "35.99", "EUR"),
        ("1.250€ 60", "1250.60", "EUR"),
        ("35€ 12 pieces", "35", "EUR"),
        ("€5 €10", "5", "EUR"),
        ("$ 8. 94", "8.94", "USD"),
        ("1.837, 32 €", "1837.32", "EUR"),
        ("118, 99 TL", "118.99", "TRY"),
        ("10, 20, 30 €", "10", "EUR"),
        ("12.99, 15.99", "12.99", None),
        ("12.99, 15", "12.99", None),
        ("15.08.2017: 9,99 €", "9.99", "EUR"),
        ("6 300 Р", "6300", "RUB"),  # noqa: RUF001
    ],
)
def test_prices(text: str, amount: str, currency: str | None) -> None:
    found = parse_price(text)
    assert found is not None
    assert (str(found.amount), found.currency) == (amount, currency)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "call us",
        "-5.00",
        "\u22125",
        "-20%",
        "9" * 13,
        "9" * 500,
        "1 " * 150,
        "€",
        "\u066c",
        "15.08.2017",
        "2017-08-15",
        "15.08.17",
        "1,2,3",
        "12.34,56",
    ],
)
def test_what_is_no_price(text: str) -> None:
    assert parse_price(text) is None


def test_a_known_currency_goes_first() -> None:
    assert parse_price("$5", "CAD") == (Decimal(5), "CAD")
    assert parse_price("10.500 KD", "KWD") == (Decimal("10.500"), "KWD")


@pytest.mark.parametrize(
    ("text", "currency"),
    [
        ("eur", "EUR"),
        ("€", "EUR"),
        ("Euro", "EUR"),
        ("FOR ALL", None),
        ("XYZ", None),
        ("", None),
        (None, None),
        ("5 USD", "USD"),
    ],
)
def test_currencies(text: str | None, currency: str | None) -> None:
    assert parse_currency(text) == currency


def test_numbers_that_are_no_prices() -> None:
    assert parse_number("4,5 of 5") == Decimal("4.5")
    assert parse_number("4.500") == Decimal("4.500")
    assert parse_number("none") is None


@given(st.text(max_size=60) | st.from_regex(r"[0-9.,' $€-]{1,20}", fullmatch=True))
def test_any_text_gives_a_price_that_may_be_kept_or_none(text: str) -> None:
    found = parse_price(text)
    if found is not None:
        exponent = found.amount.as_tuple().exponent
        assert isinstance(exponent, int)
        assert exponent >= -MAX_DECIMALS
        assert 0 <= found.amount < MAX_PRICE
        assert found.currency is None or found.currency in CURRENCIES
