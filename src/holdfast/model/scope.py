"""The scope of a job: which links it follows, and which stored URLs still belong to it after an edit.

The rule: a link is judged relative to the page that contains it; a stored URL by the domain where it stands, which the scope must reach
from a seed. Seeds are not judged: the operator gave them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.errors import BadUrl, UsageError
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.job import JobSpec, Scope
from holdfast.model.outcome import Outcome
from holdfast.model.url import check_parameter_names

RULES: Final = ("scope", "include", "exclude", "max_depth")
"""The fields of a spec that are the rules of a job: an edit of them is a new version, and stored URLs are judged again."""
DENIED_BY_RULES: Final = frozenset((Outcome.OUT_OF_SCOPE, Outcome.EXCLUDED, Outcome.TOO_DEEP))
"""Outcomes of URLs that the rules of a job leave out. Under other rules they may wait again."""


class RuleSettings(NamedTuple):
    """The settings that decide about stored URLs, beside the rules of their job."""

    max_depth: int = 10
    """Of a job without one of its own: `crawl.max_depth`."""
    registrable: bool = False
    """`domains.registrable`: which URLs belong to a domain."""


class Denial(NamedTuple):
    """The outcome and the reason of a URL that is not requested."""

    outcome: Outcome
    reason: str


def too_deep_reason(depth: int, max_depth: int) -> str:
    """The reason of a URL beyond the maximum depth."""
    return f"depth {depth} is more than {max_depth}"


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """The compiled scope of a job."""

    scope: Scope
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()

    def judge(
        self,
        source_domain: str,
        source_parent: str,
        target_domain: str,
        target_parent: str,
        url: str,
        depth: int,
        *,
        max_depth: int,
    ) -> Denial | None:
        """Why the link to `url`, `depth` links away from a seed, is not followed; None: it is.

        Domains are canonical, with their port; parents are their registrable domains.
        """
        if target_domain != source_domain:
            if self.scope is Scope.HOST:
                return Denial(Outcome.OUT_OF_SCOPE, f"{target_domain} is not {source_domain}")
            if self.scope is Scope.DOMAIN and target_parent != source_parent:
                return Denial(Outcome.OUT_OF_SCOPE, f"{target_domain} is not under {source_parent}")
        if (self.exclude or self.include) and (denial := self.denied_by_pattern(url)) is not None:
            return denial
        if depth > max_depth:
            return Denial(Outcome.TOO_DEEP, too_deep_reason(depth, max_depth))
        return None

    def is_excluded(self, url: str) -> bool:
        """Whether an exclude pattern leaves `url` out."""
        return any(pattern.search(url) for pattern in self.exclude)

    def denied_by_pattern(self, url: str) -> Denial | None:
        """Why the include and exclude patterns leave `url` out; None: they do not."""
        for pattern in self.exclude:
            if pattern.search(url):
                return Denial(Outcome.EXCLUDED, f"it matches the exclude pattern {pattern.pattern}")
        if self.include and not any(pattern.search(url) for pattern in self.include):
            return Denial(Outcome.EXCLUDED, "it matches no include pattern")
        return None


class StoredUrlJudge:
    """Judges the stored URLs of one domain by the rules of now."""

    def __init__(
        self, rules: ScopeRules, site: Site, sites: SiteCache, *, version: int, max_depth: int, in_reach: bool
    ) -> None:
        """`version`: of the rules, for the reasons. `in_reach`: whether the scope leads from a seed of the job to this domain."""
        self._rules = rules
        self._site = site
        self._sites = sites
        self._version = version
        self._max_depth = max_depth
        self.in_reach = in_reach

    def judge(self, url: str, depth: int) -> Denial | None:
        """Why a URL that stands on this domain does not belong to the job, with the version of the rules; None: it does."""
        if not depth:
            return None
        denial = self._judge(url, depth)
        return None if denial is None else Denial(denial.outcome, f"{denial.reason} (rules {self._version})")

    def _judge(self, url: str, depth: int) -> Denial | None:
        site = self._site
        if not self.in_reach:
            return Denial(Outcome.OUT_OF_SCOPE, f"no seed leads to {site.domain} under scope {self._rules.scope}")
        try:
            target = self._sites.site_of(url)
        except BadUrl:  # a host that was stored before such hosts were refused: the fetch fails with the reason
            return self._rules.denied_by_pattern(url)
        return self._rules.judge(
            site.domain, site.parent, target.domain, target.parent, url, depth, max_depth=self._max_depth
        )


def rules_of_spec(spec: JobSpec) -> dict[str, Any]:
    """The rules of a job, as JSON to store and to compare."""
    return {name: list(value) if isinstance(value := getattr(spec, name), tuple) else value for name in RULES}


def spec_with_rules(spec: JobSpec, rules: Mapping[str, Any]) -> JobSpec:
    """The spec with these rules instead of its own. `rules`: as `rules_of_spec` returns them."""
    return JobSpec.from_json(spec.as_json() | dict(rules))


def describe_rules(rules: Mapping[str, Any]) -> str:
    """The rules as words of the command that sets them: `scope=host exclude=/private/`."""
    words = []
    for name, value in rules.items():
        values = value if isinstance(value, list) else [value]
        words += [f"{name}={one}" for one in values if one is not None]
    return " ".join(words)


def compile_rules(spec: JobSpec) -> ScopeRules:
    """Compile the scope of a job. Raises UsageError for an invalid regular expression and for an invalid name of a parameter to strip."""
    check_parameter_names(spec.strip_params)
    include, exclude = (
        tuple(_compiled(kind, text) for text in patterns)
        for kind, patterns in (("include", spec.include), ("exclude", spec.exclude))
    )
    return ScopeRules(spec.scope, include, exclude)


def _compiled(kind: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as why:
        shown = text if len(text) <= 100 else f"{text[:99]}…"
        raise UsageError(f"The {kind} pattern {shown!a} is not a regular expression: {why}.") from None
