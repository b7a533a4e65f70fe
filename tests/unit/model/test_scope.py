"""Which links a job follows."""

from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.job import JobSpec, Scope
from holdfast.model.outcome import Outcome
from holdfast.model.scope import (
    Denial,
    StoredUrlJudge,
    compile_rules,
    describe_rules,
    rules_of_spec,
    spec_with_rules,
)

HERE = ("example.com", "example.com")
PORT = ("example.com:8080", "example.com")
BLOG = ("blog.example.com", "example.com")
AWAY = ("example.org", "example.org")


def judge(
    spec: JobSpec, target: tuple[str, str] = HERE, url: str = "https://example.com/a", depth: int = 1
) -> Denial | None:
    return compile_rules(spec).judge(*HERE, *target, url, depth, max_depth=3)


@pytest.mark.parametrize(
    ("scope", "followed"),
    [(Scope.HOST, [HERE]), (Scope.DOMAIN, [HERE, PORT, BLOG]), (Scope.ANY, [HERE, PORT, BLOG, AWAY])],
)
def test_scopes(scope: Scope, followed: list[tuple[str, str]]) -> None:
    denials = {target: judge(JobSpec(scope=scope), target) for target in (HERE, PORT, BLOG, AWAY)}
    assert [target for target, denial in denials.items() if denial is None] == followed
    assert {denial.outcome for denial in denials.values() if denial} <= {Outcome.OUT_OF_SCOPE}


def test_a_denial_says_why() -> None:
    assert judge(JobSpec(), AWAY) == (Outcome.OUT_OF_SCOPE, "example.org is not example.com")
    assert judge(JobSpec(scope=Scope.DOMAIN), AWAY) == (Outcome.OUT_OF_SCOPE, "example.org is not under example.com")
    assert judge(JobSpec(), depth=4) == (Outcome.TOO_DEEP, "depth 4 is more than 3")
    assert judge(JobSpec(exclude=("/b$", "/a"))) == (Outcome.EXCLUDED, "it matches the exclude pattern /a")
    assert judge(JobSpec(include=("/b",))) == (Outcome.EXCLUDED, "it matches no include pattern")


def test_depth_is_inclusive() -> None:
    assert judge(JobSpec(), depth=3) is None


def test_one_include_is_enough_and_exclude_wins() -> None:
    assert judge(JobSpec(include=("/b", "/a"))) is None
    assert judge(JobSpec(include=("/a",), exclude=("/a",))) is not None


@pytest.mark.parametrize("kind", ["include", "exclude"])
@pytest.mark.parametrize("text", ["(", "*", "[a", "(?P<x>", "a{99999999999999}", "(" * 5000])
def test_a_pattern_that_is_none_is_refused_in_a_sentence(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"^The {kind} pattern '.+' is not a regular expression: .+\.$"):
        compile_rules(JobSpec(include=(text,)) if kind == "include" else JobSpec(exclude=(text,)))


SITE = Site("a.example", "a.example", "https://a.example")


def stored_judge(max_depth: int = 5, *, in_reach: bool = True, **rules: Any) -> StoredUrlJudge:
    sites = SiteCache(registrable=False)
    spec = compile_rules(JobSpec(**rules))
    return StoredUrlJudge(spec, SITE, sites, version=3, max_depth=max_depth, in_reach=in_reach)


@pytest.mark.parametrize(
    ("rules", "url", "depth", "outcome"),
    [
        ({}, "https://a.example/x", 5, None),
        ({}, "https://a.example/x", 6, Outcome.TOO_DEEP),
        ({"exclude": ("/x",)}, "https://a.example/x", 1, Outcome.EXCLUDED),
        ({"exclude": ("/x",)}, "https://a.example/x", 0, None),
        ({"include": ("/y",)}, "https://a.example/x", 1, Outcome.EXCLUDED),
        ({}, "https://b.a.example/x", 1, Outcome.OUT_OF_SCOPE),
        ({"scope": Scope.DOMAIN}, "https://b.a.example/x", 1, None),
        ({"scope": Scope.DOMAIN}, "https://b.example/x", 1, Outcome.OUT_OF_SCOPE),
        ({"scope": Scope.ANY}, "https://b.example/x", 1, None),
    ],
)
def test_a_stored_url_is_judged_by_the_domain_where_it_stands(
    rules: dict[str, Any], url: str, depth: int, outcome: Outcome | None
) -> None:
    denial = stored_judge(**rules).judge(url, depth)
    assert (None if denial is None else denial.outcome) == outcome
    assert denial is None or denial.reason.endswith(" (rules 3)")


def test_a_domain_that_no_seed_leads_to_keeps_its_seeds_only() -> None:
    outside = stored_judge(in_reach=False)
    assert outside.judge("https://a.example/", 0) is None
    denial = outside.judge("https://a.example/x", 1)
    assert denial == Denial(Outcome.OUT_OF_SCOPE, "no seed leads to a.example under scope host (rules 3)")


def test_the_rules_of_a_spec_are_stored_compared_and_described() -> None:
    spec = JobSpec(scope=Scope.ANY, exclude=("/a", "/b"), max_depth=3, max_pages=9)
    rules = rules_of_spec(spec)
    assert rules == {"scope": "any", "include": [], "exclude": ["/a", "/b"], "max_depth": 3}
    assert describe_rules(rules) == "scope=any exclude=/a exclude=/b max_depth=3"
    assert spec_with_rules(JobSpec(max_pages=9), rules) == spec
