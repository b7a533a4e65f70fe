"""Sentences with commands in them, as pages show them."""

from holdfast.dashboard.text import commands


def test_what_stands_between_backticks_is_code() -> None:
    assert commands("`--scope any` or `--scope domain` widens it") == (
        '<code><span class="nowrap">--scope</span> any</code> or <code><span class="nowrap">--scope</span> domain</code> widens it'
    )


def test_everything_is_escaped() -> None:
    assert commands("<b> `holdfast jobs set '<i>'`") == "&lt;b&gt; <code>holdfast jobs set &#39;&lt;i&gt;&#39;</code>"
    assert commands(None) == "\N{EN DASH}"
