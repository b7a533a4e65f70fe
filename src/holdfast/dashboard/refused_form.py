"""A refused form: its page is shown again, with what was typed and the reason.

The rule: the page is rendered as usual and rewritten, so that no template and no route takes part in it. Hidden fields, passwords, files
and fields that are marked `data-secret` are never sent back.
"""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Final, NamedTuple

from markupsafe import Markup

from holdfast.api.forms import CSRF_FIELD, KEY_FIELD
from holdfast.dashboard import text

BACK_FIELD: Final = "back"
"""The field of a form with the page that it is on."""
_OWN: Final = frozenset({BACK_FIELD, CSRF_FIELD, KEY_FIELD})
_NOT_SHOWN: Final = frozenset({"hidden", "password", "file", "submit", "button", "reset", "image"})
_TICKED: Final = frozenset({"checkbox", "radio"})

Attributes = dict[str, str | None]


class RefusedForm(NamedTuple):
    """A form that was refused."""

    target: str
    """The path that it was sent to."""
    page: str
    """The address of the page that it is on."""
    fields: Sequence[tuple[str, str]]
    problem: str
    status: int = 422


def fill_in(html: str, refused: RefusedForm) -> str:
    """Return a page with the values of a refused form in the fields of that form; a page without the form stays as it is."""
    finder = _Filler(html, refused)
    finder.feed(html)
    finder.close()
    for start, end, replacement in sorted(finder.edits, reverse=True):
        html = html[:start] + replacement + html[end:]
    return html


class _Filler(HTMLParser):
    """Finds what has to be replaced in a page: from where, to where, and by what."""

    def __init__(self, html: str, refused: RefusedForm) -> None:
        super().__init__()
        self.edits: list[tuple[int, int, str]] = []
        self._lines = [0, *(found.end() for found in re.finditer("\n", html))]
        self._target = refused.target
        self._sent = [field for field in refused.fields if field[0] not in _OWN]
        self._left: list[tuple[str, str]] = []
        """Values that no field of the form has taken yet: a name may occur several times."""
        self._in_form = False
        self._details: list[tuple[int, int, Attributes]] = []
        self._textarea: tuple[int, str] | None = None
        self._select: str | None = None
        self._option: tuple[int, int, Attributes] | None = None
        self._option_text = ""

    def handle_starttag(self, tag: str, pairs: list[tuple[str, str | None]]) -> None:
        start = self._offset()
        end = start + len(self.get_starttag_text() or "")
        attributes: Attributes = dict(pairs)
        if tag == "details":
            self._details.append((start, end, attributes))
        elif tag == "form" and attributes.get("action") == self._target and attributes.get("method") == "post":
            self._in_form, self._left = True, list(self._sent)
            for where in self._details:
                self._replace(*where[:2], "details", {**where[2], "open": None})
        elif self._in_form:
            self._field(tag, attributes, start, end)

    def handle_endtag(self, tag: str) -> None:
        if tag == "details" and self._details:
            self._details.pop()
        elif tag == "form":
            self._in_form = False
        elif tag == "textarea" and self._textarea is not None:
            (start, value), self._textarea = self._textarea, None
            self.edits.append((start, self._offset(), f"\n{_escaped(value)}"))
        elif tag in {"option", "select"}:
            self._end_option()
            if tag == "select":
                self._select = None

    def handle_data(self, data: str) -> None:
        self._option_text += data

    def _field(self, tag: str, attributes: Attributes, start: int, end: int) -> None:
        name, kind = attributes.get("name") or "", (attributes.get("type") or "text").lower()
        if tag == "option" and self._select is not None:
            self._end_option()
            self._option, self._option_text = (start, end, attributes), ""
            return
        if not name or "data-secret" in attributes or (tag == "input" and kind in _NOT_SHOWN):
            return
        if tag == "input" and kind in _TICKED:
            ticked = (name, attributes.get("value") or "on") in self._sent
            attributes.pop("checked", None)
            self._replace(start, end, tag, {**attributes, "checked": None} if ticked else attributes)
        elif tag in {"input", "textarea", "select"} and (value := self._take(name)) is not None:
            if tag == "input":
                self._replace(start, end, tag, {**attributes, "value": value})
            elif tag == "textarea":
                self._textarea = (end, value)
            else:
                self._select = value

    def _take(self, name: str) -> str | None:
        found = next((field for field in self._left if field[0] == name), None)
        if found is None:
            return None
        self._left.remove(found)
        return found[1]

    def _end_option(self) -> None:
        if self._option is None:
            return
        (start, end, attributes), self._option = self._option, None
        value = attributes.get("value")
        attributes.pop("selected", None)
        if (self._option_text.strip() if value is None else value) == self._select:
            attributes["selected"] = None
        self._replace(start, end, "option", attributes)

    def _replace(self, start: int, end: int, tag: str, attributes: Attributes) -> None:
        written = "".join(
            f" {name}" if value is None else f' {name}="{_escaped(value)}"' for name, value in attributes.items()
        )
        self.edits = [edit for edit in self.edits if edit[0] != start]
        self.edits.append((start, end, f"<{tag}{written}>"))

    def _offset(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column


def _escaped(value: str) -> str:
    return str(Markup("{}").format(text.clean(text.whole(value.replace("\r\n", "\n")))))
