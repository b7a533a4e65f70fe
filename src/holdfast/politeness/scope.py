"""The scope of a job: which links it follows.

The rule: a link is judged relative to the page that contains it. Seeds are not judged: the operator gave them.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.model.job import JobSpec, Scope
from holdfast.model.outcome import Outcome
from holdfast.model.url import check_parameter_names


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

    def denied_by_pattern(self, url: str) -> Denial | None:
        """Why the include and exclude patterns leave `url` out; None: they do not."""
        for pattern in self.exclude:
            if pattern.search(url):
                return Denial(Outcome.EXCLUDED, f"it matches the exclude pattern {pattern.pattern}")
        if self.include and not any(pattern.search(url) for pattern in self.include):
            return Denial(Outcome.EXCLUDED, "it matches no include pattern")
        return None


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
