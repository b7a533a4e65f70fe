"""Which links a job follows."""

import pytest

from holdfast.errors import UsageError
from holdfast.model.job import JobSpec, Scope
from holdfast.model.outcome import Outcome
from holdfast.politeness.scope import Denial, compile_rules

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
