"""The lenient JSON decoder."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parse.lenient_json import loads


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a":1}', [{"a": 1}]),
        ('\ufeff {"a":1};', [{"a": 1}]),
        ('[{"a":1},{"b":2},]', [[{"a": 1}, {"b": 2}]]),
        ('{"a":1}\n{"b":2}', [{"a": 1}, {"b": 2}]),
        ('{"a":1}}', [{"a": 1}]),
        ('{"a":NaN,"b":Infinity}', [{"a": None, "b": None}]),
        ('{"a":"x\n\ty\0"}', [{"a": "x\n\ty\0"}]),
        ('<!-- {"a":1} -->', [{"a": 1}]),
        ('<!-- --> {"a":1}', [{"a": 1}]),
        ('<!-- made by {x} -->\n<!-- 2 -->\n[{"a":1}]', [[{"a": 1}]]),
        ('{"a":1} <!-- and --> {"b":2}', [{"a": 1}, {"b": 2}]),
        ('<!-- one --><![CDATA[{"a":1}]]>', [{"a": 1}]),
        ('<!-- {"a":1} --> // end', [{"a": 1}]),
        ('<!-- {"a":1}', [{"a": 1}]),
        ('//<![CDATA[\n{"a":1}\n//]]>', [{"a": 1}]),
        ('/*<![CDATA[*/ {"a":1} /*]]>*/', [{"a": 1}]),
        ('{/* one */"a":1, // two\n"u":"http://x//y",}', [{"a": 1, "u": "http://x//y"}]),
        ('{"a":"it\\\'s \\x"}', [{"a": "it's x"}]),
        ('{"a":"/* kept */ ,}"  ,}', [{"a": "/* kept */ ,}"}]),
        ("{&quot;a&quot;:&quot;b &amp; c&quot;,}", [{"a": "b & c"}]),
        ('{"a":"24" TV","b":2}', [{"a": '24" TV', "b": 2}]),
        ("{broken", []),
        ('"text"', []),
        ("5", []),
        ("", []),
        ("[" * 50_000, []),
        ('{"a":' + "9" * 5000 + "}", []),
        ('{"a":' + " " * 2_000_000 + "1}", []),
    ],
)
def test_what_is_read(text: str, values: list[Any]) -> None:
    assert loads(text) == values


@pytest.mark.parametrize(
    "part", ["/*", '"\\', '"', '{"', ",   ", '" ', "//", "\\", "&quot;", "<!--", "]]>", '{"a":1,\n', '"a" ']
)
def test_endless_repeats_are_read_in_time_that_grows_with_the_text(part: str) -> None:
    assert loads("{" + part * (60_000 // len(part))) in ([], [{}])


@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))
    )
)
def test_good_json_is_left_alone(value: dict[str, Any]) -> None:
    assert loads(json.dumps(value)) == [value]


@given(st.text(st.sampled_from('{}[]",:\\/*ab1 \n'), max_size=60))
def test_nothing_raises(text: str) -> None:
    assert isinstance(loads(text), list)
