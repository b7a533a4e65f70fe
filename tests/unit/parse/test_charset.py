"""Charset detection: precedence of the sources, known labels, and that nothing raises."""

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.parse.charset import LABELS, DetectedEncoding, decode, detect, find_encoding

RUSSIAN = "Привет, это обычная страница на русском языке, для проверки кодировки. "


@pytest.mark.parametrize(
    ("body", "content_type", "name"),
    [
        (b"\xef\xbb\xbfx", "text/html; charset=koi8-r", "utf-8"),
        (codecs.BOM_UTF16_LE + "é".encode("utf-16-le"), None, "utf-16le"),
        (codecs.BOM_UTF16_BE + "é".encode("utf-16-be"), None, "utf-16be"),
        (b"<meta charset=koi8-r>", "text/html; charset=windows-1251", "windows-1251"),
        (b"x", 'text/html; charset="Shift_JIS"', "shift_jis"),
        (b"x", "text/html;charset = 'gb2312' ;x=y", "gbk"),
        (b"<meta charset=koi8-r>", "text/html; charset=nonsense", "koi8-r"),
        (b"<meta charset='ISO-8859-1'>", None, "windows-1252"),
        (b'<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=euc-jp">', "text/html", "euc-jp"),
        (b"<!-- <meta charset=koi8-r> --><meta charset=big5>", None, "big5"),
        (b"<meta charset=nonsense><meta charset=big5>", None, "big5"),
        (b"<meta charset=utf-16>", None, "utf-8"),
        (b" " * 2000 + b"<meta charset=big5>", None, "big5"),
        (b" " * 15_000 + b"<meta charset=big5>", None, "big5"),
        (b" " * 17_000 + b"<meta charset=big5>", None, "utf-8"),
        ("é".encode(), None, "utf-8"),
        (b"caf\xe9 and a long tail of plain letters", None, "windows-1252"),
        (RUSSIAN.encode("windows-1251") * 5, None, "windows-1251"),
        (b"\xff", None, "windows-1252"),
        (b"", None, "utf-8"),
    ],
)
def test_who_is_believed(body: bytes, content_type: str | None, name: str) -> None:
    assert detect(body, content_type).name == name


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"<meta name=description content='How to set charset=iso-8859-1'><meta charset=utf-8>", "utf-8"),
        (b"<meta name=description content='charset=koi8-r'>", "utf-8"),
        (b"<meta content='text/html; charset=koi8-r'>", "utf-8"),
        (b"<meta content='text/html; charset=koi8-r' http-equiv=Content-Type>", "koi8-r"),
        (b"<meta content='text/html; charset=koi8-r' http-equiv='Content-Type '>", "utf-8"),
        (b"<meta http-equiv=Content-Style-Type content='text/css; charset=koi8-r'>", "utf-8"),
        (b"<meta/http-equiv=content-type\ncontent='x; charset x charset = \"koi8-r\" '/>", "koi8-r"),
        (b"<meta http-equiv=content-type content='charset=\"koi8-r'>", "utf-8"),
        (b"<meta http-equiv=content-type content='charset=koi8-r' charset=big5>", "big5"),
        (b"<meta charset=big5 charset=koi8-r>", "big5"),
        (b'<meta charset=koi8-r"><p>"', "utf-8"),
        (b"<meta charset='koi8-r><p>\"", "utf-8"),
        (b"<p title='x><meta charset=koi8-r>", "utf-8"),
        (b"<p title='x><meta charset=koi8-r>'><meta charset=big5>", "big5"),
        (b"<meta x='>' charset=koi8-r>", "koi8-r"),
        (b"<metacharset=koi8-r>", "utf-8"),
        (b"<meta charset=koi8-r", "utf-8"),
        (b"<!-- <meta charset=koi8-r>", "utf-8"),
        (b"<!--><meta charset=koi8-r>-->", "koi8-r"),
        (b"<? <meta charset=koi8-r><meta charset=big5>", "big5"),
        (b"1 < 2 <META CharSet = KOI8-R>", "koi8-r"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<?xml version='1.0' encoding='koi8-r'?><html>", "koi8-r"),
        (b"<?xml version='1.0' encoding='koi8-r'?><meta charset=big5>", "big5"),
    ],
)
def test_a_declaration_is_found_as_the_standard_says(head: bytes, name: str) -> None:
    assert detect(head, None).name == name


def test_a_mark_is_no_text() -> None:
    assert detect(b"\xef\xbb\xbfx", None) == DetectedEncoding("utf-8", 3)
    assert detect(b"x", None) == DetectedEncoding("utf-8", 0)


@pytest.mark.parametrize(
    "label",
    [
        "zip",
        "hex",
        "rot13",
        "unicode_escape",
        "raw_unicode_escape",
        "idna",
        "punycode",
        "utf-7",
        "utf_8_sig",
        "base64",
        "",
        "mbcs",
    ],
)
def test_codecs_that_are_no_encoding_of_the_web_are_unknown(label: str) -> None:
    assert find_encoding(label) is None
    assert detect(b"<meta charset=" + label.encode() + b">x", f"text/html; charset={label}").name == "utf-8"


@pytest.mark.parametrize(
    ("label", "data", "text"),
    [
        ("latin1", b"\x80\x81\xe9", "€\x81é"),
        ("windows-1251", b"\xcf\xf0", "Пр"),
        ("iso-8859-2", b"\xb1", "ą"),
        ("iso-8859-3", b"\xa5", "\ufffd"),
        ("gb2312", b"\xc4\xe3", "你"),
        ("sjis", b"\x93\xfa", "日"),
        ("ks_c_5601-1987", b"\xc7\xd1", "한"),
        ("utf-8", b"a\xff\x00b\xed\xa0\x80", "a\ufffd\ufffdb\ufffd\ufffd\ufffd"),
        ("utf-16le", b"\x00\xd8a\x00", "\ufffd"),
        ("windows-1255", b"\xca", "\u05ba"),
        ("koi8-u", b"\xae\xbe", "\u045e\u040e"),
        ("x-user-defined", b"a\x80\xff", "a\uf780\uf7ff"),
    ],
)
def test_decoding(label: str, data: bytes, text: str) -> None:
    name = find_encoding(label)
    assert name is not None
    assert decode(data, name).startswith(text)


@settings(max_examples=100)
@given(st.binary(max_size=300), st.sampled_from(sorted(LABELS)))
def test_any_bytes_under_any_label_are_clean_text(data: bytes, label: str) -> None:
    text = decode(data, LABELS[label])
    assert "\0" not in text
    text.encode()


@settings(max_examples=100)
@given(st.binary(max_size=300), st.none() | st.text(max_size=50))
def test_detection_never_raises(body: bytes, content_type: str | None) -> None:
    assert detect(body, content_type).name in LABELS
