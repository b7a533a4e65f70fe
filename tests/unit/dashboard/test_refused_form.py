"""A refused form comes back with what was typed: every kind of field, and never a secret."""

import pytest

from holdfast.dashboard.refused_form import RefusedForm, fill_in

FORM = '<form action="/here" method="post" class="panel">{}</form>'


@pytest.mark.parametrize(
    ("field", "sent", "shown"),
    [
        ('<input name="a" value="1">', {"a": "2"}, '<input name="a" value="2">'),
        ('<input name="a" required>', {"a": "2"}, '<input name="a" required value="2">'),
        ('<input name="a" value="1">', {"a": '"><script>'}, '<input name="a" value="&#34;&gt;&lt;script&gt;">'),
        ('<input name="a" value="1">', {"b": "2"}, '<input name="a" value="1">'),
        ('<input name="a" value="1">', {"a": ""}, '<input name="a" value="">'),
        ('<textarea name="a">1\n2</textarea>', {"a": "3\r\n4"}, '<textarea name="a">\n3\n4</textarea>'),
        ('<textarea name="a"></textarea>', {"a": "</textarea><b>"}, '<textarea name="a">\n&lt;/textarea&gt;&lt;b&gt;</textarea>'),
        (
            '<select name="a"><option value="">all</option><option selected>5</option><option value="6">six</option></select>',
            {"a": "6"},
            '<select name="a"><option value="">all</option><option>5</option><option value="6" selected>six</option></select>',
        ),
        ('<select name="a"><option>5</option><option selected>6</option></select>', {"a": "5"},
         '<select name="a"><option selected>5</option><option>6</option></select>'),
        ('<input type="checkbox" name="a" checked>', {"b": "x"}, '<input type="checkbox" name="a">'),
        ('<input type="checkbox" name="a" value="x"><input type="checkbox" name="a" value="y">', {"a": "y"},
         '<input type="checkbox" name="a" value="x"><input type="checkbox" name="a" value="y" checked>'),
        ('<input type="hidden" name="version" value="7">', {"version": "6"}, '<input type="hidden" name="version" value="7">'),
        ('<input type="password" name="a">', {"a": "secret"}, '<input type="password" name="a">'),
        ('<input type="file" name="a">', {"a": "content"}, '<input type="file" name="a">'),
        ('<textarea name="a" data-secret></textarea>', {"a": "X-Key: 1"}, '<textarea name="a" data-secret></textarea>'),
        ('<input name="csrf"><input name="idempotency_key"><input name="back">', {"csrf": "1", "idempotency_key": "2", "back": "/"},
         '<input name="csrf"><input name="idempotency_key"><input name="back">'),
    ],
)  # fmt: skip
def test_a_field_has_what_was_sent(field: str, sent: dict[str, str], shown: str) -> None:
    refused = RefusedForm("/here", "/page", tuple(sent.items()), "why")
    assert fill_in(FORM.format(field), refused) == FORM.format(shown)


def test_other_forms_and_other_targets_stay_as_they_are() -> None:
    page = '<p>ä\n<form action="/there" method="post"><input name="a"></form>\n<form action="/here"><input name="a"></form>'
    assert fill_in(page, RefusedForm("/here", "/page", (("a", "1"),), "why")) == page


def test_what_encloses_the_form_is_opened_and_each_value_is_taken_once() -> None:
    page = '<details><details id="x"><form action="/here" method="post"><input name="a">\n<input name="a"></form></details></details>'
    shown = fill_in(page, RefusedForm("/here", "/page", (("a", "1"), ("a", "2")), "why"))
    assert shown == (
        '<details open><details id="x" open><form action="/here" method="post">'
        '<input name="a" value="1">\n<input name="a" value="2"></form></details></details>'
    )
