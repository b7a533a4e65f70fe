"""Which links a job follows.

The rule: a link is judged from the page it stands on. Seeds are not judged: a person gave them.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.model.job import JobSpec, Scope
from holdfast.model.outcome import Outcome
from holdfast.model.url import check_parameter_names


class Denial(NamedTuple):
    """Why a URL is not asked for."""

    outcome: Outcome
    reason: str


def beyond_depth(depth: int, max_depth: int) -> str:
    """The reason of a URL that is too deep."""
    return f"depth {depth} is more than {max_depth}"


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """The scope of a job, ready to judge."""

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

        Domains are canonical ones, with their port; parents are their registrable domains.
        """
        if target_domain != source_domain:
            if self.scope is Scope.HOST:
                return Denial(Outcome.OUT_OF_SCOPE, f"{target_domain} is not {source_domain}")
            if self.scope is Scope.DOMAIN and target_parent != source_parent:
                return Denial(Outcome.OUT_OF_SCOPE, f"{target_domain} is not under {source_parent}")
        if (self.exclude or self.include) and (denial := self.matches(url)) is not None:
            return denial
        if depth > max_depth:
            return Denial(Outcome.TOO_DEEP, beyond_depth(depth, max_depth))
        return None

    def matches(self, url: str) -> Denial | None:
        """Why the patterns leave `url` out; None: they do not."""
        for pattern in self.exclude:
            if pattern.search(url):
                return Denial(Outcome.EXCLUDED, f"it matches the exclude pattern {pattern.pattern}")
        if self.include and not any(pattern.search(url) for pattern in self.include):
            return Denial(Outcome.EXCLUDED, "it matches no include pattern")
        return None


def compile_rules(spec: JobSpec) -> ScopeRules:
    """The rules of a job; raises UsageError for a pattern that is none, and for a parameter to drop that none is called."""
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
