"""The fields of a job in forms: read, checked, and kept for showing the form again.

The rule: a mistake never loses what was typed. All fields are read; each problem stands at its field, and the first one at the top.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

from holdfast.api.forms import Form, check_model
from holdfast.api.request_types import Body, SecretFields
from holdfast.errors import BadUrl, HoldfastError, UsageError
from holdfast.jobs.records import Job
from holdfast.model.content_type import ContentGroup, read_groups
from holdfast.model.domain import Seed
from holdfast.model.job import JobSpec
from holdfast.model.request_secrets import RequestSecrets
from holdfast.model.seed_lines import SeedLineParser
from holdfast.model.url import UrlRules

NUMBERS: Final = {
    "max_pages": "Pages of a crawl",
    "max_pages_per_domain": "Pages of each domain",
    "rounds": "Rounds",
    "max_depth": "Depth",
    "concurrency": "Requests at once",
}
FLAGS: Final = {
    "robots": "Obey robots.txt",
    "follow": "Follow links",
    "archive": "Archive responses",
    "text": "Keep the text of pages",
    "images": "Store the images of pages",
    "markdown": "Store the main content of pages as Markdown",
    "links": "Record the links of pages",
    "check_external": "Check links out of scope",
    "refresh": "Fetch pages again when a refresh is due",
    "allow_private": "Also ask servers of private networks",
}
LINES: Final = {"include": "Include", "exclude": "Exclude", "strip_params": "Parameters to drop"}
TEXTS: Final = {
    "user_agent": "User agent",
    "parser": "Parser",
    "scope": "Scope",
    "delay": "Delay",
    "sitemaps": "Sitemaps",
}
TYPES: Final = "types"
"""The field of the groups of content types, which are written with commas between them."""
LABELS: Final = {**NUMBERS, **FLAGS, **LINES, **TEXTS, TYPES: "Other content"}
SECRETS: Final = {"headers": "Headers", "cookies": "Cookies", "basic_auth": "User and password"}
MAX_BAD_LINES: Final = 10
"""Invalid seeds that are reported one by one."""

Model = TypeVar("Model", bound=Body)
T = TypeVar("T")


@dataclass(slots=True)
class Problems:
    """What is wrong with a form, by field, in the order of the form; the empty name is for the form as a whole."""

    found: dict[str, str] = field(default_factory=dict)

    def check(self, name: str, read: Callable[[], T]) -> T | None:
        """Return what `read` returns; what it raises is a problem of that field, and None is returned."""
        try:
            return read()
        except HoldfastError as problem:
            self.found.setdefault(name, str(problem))
            return None

    def model(self, kind: type[Model], values: Mapping[str, Any]) -> Model | None:
        """Return a body of the API with these values; None: some are wrong, and noted at their fields."""
        body, wrong = check_model(kind, values)
        for name, what in wrong:
            label = LABELS.get(name) or SECRETS.get(name, name)
            self.found.setdefault(name, f"“{label}”: {what[:1].lower()}{what[1:]}.")
        return body

    @property
    def first(self) -> str | None:
        """The first problem, with the number of the others."""
        if not self.found:
            return None
        more = len(self.found) - 1
        return next(iter(self.found.values())) + (f" ({more} more below.)" if more else "")


def job_path(job: Job) -> str:
    """Return the address of a job's page: by its name, or by its id where the name is that of another page."""
    return f"/jobs/{job.id if job.name == 'new' else quote(job.name, safe='')}"


def values_of_spec(spec: JobSpec) -> dict[str, Any]:
    """Return the options of a job as fields of a form show them."""
    shown = {name: "" if value is None else value for name, value in spec.as_json().items()}
    shown[TYPES] = ", ".join(spec.types)
    return {name: "\n".join(value) if name in LINES else value for name, value in shown.items()}


def values_of_form(form: Form) -> dict[str, Any]:
    """Return the fields of a form as they were sent, to show them again."""
    names = (*NUMBERS, *LINES, *TEXTS, *SECRETS, TYPES, "name", "schedule", "seeds")
    return {name: form.raw(name) for name in names} | {name: form.flag(name) for name in FLAGS}


def read_options(form: Form, problems: Problems) -> dict[str, Any]:
    """Return the options in a form, as `Spec` and `JobChange` take them; None: the field was left empty."""
    options: dict[str, Any] = {}
    for name, label in NUMBERS.items():
        if name in form:
            options[name] = problems.check(name, lambda name=name, label=label: form.integer(name, label))  # type: ignore[misc]
    for name in LINES:
        if name in form:
            options[name] = form.lines(name)
    for name in TEXTS:
        if name in form:
            options[name] = form.text(name)
    if TYPES in form:
        options[TYPES] = problems.check(TYPES, lambda: _groups(form.raw(TYPES)))
    if options.get("delay") is not None:
        options["delay"] = problems.check("delay", lambda: _seconds(options["delay"]))
    return options | {name: form.flag(name) for name in FLAGS}


def read_secrets(form: Form, problems: Problems) -> RequestSecrets | None:
    """Return the headers, cookies and credentials in a form; None: it has none."""
    given: dict[str, Any] = {name: form.lines(name) for name in ("headers", "cookies") if form.lines(name)}
    if form.text("basic_auth"):
        given["basic_auth"] = form.raw("basic_auth")
    body = problems.model(SecretFields, given)
    return None if body is None else problems.check("headers", body.to_request_secrets)


@dataclass(frozen=True, slots=True)
class SeedLines:
    """The seeds of a form: typed lines, and those of a file."""

    text: str
    """All lines, to show the form again: a file cannot be chosen again for the user."""
    urls: tuple[str, ...]
    seeds: tuple[Seed, ...]
    """The same ones, as they were read."""
    bad: tuple[str, ...]
    """What is wrong with invalid lines; the first ones."""
    bad_count: int


def read_seeds(form: Form, rules: UrlRules, *, registrable: bool) -> SeedLines:
    """Return the seeds of a form. Lines are as in a seed file: URLs, domains, `rank,domain`, comments."""
    texts = [text for text in (form.raw("seeds"), form.raw("file")) if text.strip()]
    lines = "\n".join(text.strip("\r\n") for text in texts).splitlines()
    parser = SeedLineParser(rules, registrable)
    urls, seeds, bad, count = list[str](), list[Seed](), list[str](), 0
    for number, line in enumerate(lines, start=1):
        try:
            seed = parser.read(line.encode())
        except BadUrl as problem:
            count += 1
            bad += [f"Line {number}: {problem}"] if len(bad) < MAX_BAD_LINES else []
            continue
        if seed is not None:
            urls.append(seed.url.removeprefix("https://") if seed.guessed else seed.url)
            seeds.append(seed)
    return SeedLines("\n".join(lines), tuple(urls), tuple(seeds), tuple(bad), count)


def _groups(text: str) -> list[ContentGroup]:
    try:
        return list(read_groups(text))
    except ValueError as problem:
        raise UsageError(f"“{LABELS[TYPES]}”: {problem}.") from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError("“Delay” must be a number of seconds, such as 0.5.") from None
