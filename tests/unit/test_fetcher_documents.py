"""What docs/fetcher.md says is what the package does."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import inbox.fetcher
from inbox.fetcher import FetcherVerifier, JobCompleted, JobFailed, JobResult, result_errors
from inbox.fetcher.refusals import InconsistentReason, InvalidReason, JobEventRefused, StaleReason
from inbox.fetcher.verifier import DEFAULT_EXCHANGE, DEFAULT_MAX_FUTURE, DEFAULT_ROUTES, Route

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/fetcher.md").read_text()
REASONS = {
    "invalid": get_args(InvalidReason),
    "stale": get_args(StaleReason),
    "inconsistent": get_args(InconsistentReason),
}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_code_and_every_reason_is_told_and_no_other() -> None:
    told: dict[str, set[str]] = {}
    code = ""
    for line in section("What is checked").splitlines():
        if line.startswith(("| `", "| | `")):
            first, reasons, *_ = [cell.strip() for cell in line.strip("|").split("|")]
            code = first.strip("`") or code
            told.setdefault(code, set()).update(re.findall(r"`([a-z-]+)`", reasons))
    assert told == {code: {*reasons} for code, reasons in REASONS.items()}
    assert {each.code for each in JobEventRefused.__subclasses__()} == {*told}


def test_every_code_has_its_row_among_the_failures_and_in_the_reference() -> None:
    failures, reference = (ROOT / f"docs/{name}.md" for name in ("failures", "reference/errors"))
    for code in REASONS:
        assert re.search(
            rf"^\| .* \| `refused` \| .* \| `{code}` \| `tests/.*` \|$", failures.read_text(), re.MULTILINE
        )
        assert f"\n| `{code}` |" in reference.read_text()


def test_the_consumer_is_what_the_package_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:password@host/database")
    monkeypatch.setenv("AMQP_URL", "amqp://guest:guest@host/")
    monkeypatch.setenv("FETCHER_EXTERNAL_HMAC_KEY", "0f" * 32)
    (program,) = re.findall(r"```python\n(.*?)```", section("A consumer, whole"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 - a program of ours
    made = names["make_inbox"]()
    assert {handler.event_type for handler in made.registry} == {*JobCompleted.TYPES, *JobFailed.TYPES}
    assert (made.settings.identity, made.settings.fingerprint) == ("id", None)
    for kind in (*JobCompleted.TYPES, "`fetcher.job.events`"):
        assert kind in PAGE


def test_the_consumer_that_reads_results_is_what_the_package_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:password@host/database")
    for name in ("FETCHER_EXTERNAL_HMAC_KEY", "FETCHER_STORAGE_KEY"):
        monkeypatch.setenv(name, "0f" * 32)
    (program,) = re.findall(r"```python\n(.*?)```", section("Stored results"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 - as above
    made = names["make_inbox"]()
    assert {handler.event_type for handler in made.registry if handler.prepare is not None} == {*JobCompleted.TYPES}
    assert made.settings.retry.steps == (1, 5, 10, 30, 60, 180, 300)


def test_every_error_of_a_result_is_told_with_its_reason() -> None:
    told = dict(re.findall(r"\| `(Result\w+)` \| .* \| `([a-z-]+)` \|", section("Stored results")))
    assert {*told} == {*result_errors.__all__}
    for name, reason in told.items():
        assert getattr(getattr(result_errors, name), "code", "retries-used-up") == reason


def test_the_settings_of_the_verifier_are_told_with_their_defaults() -> None:
    told = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section("Settings of the verifier"), re.MULTILINE)
    given = [name for name in FetcherVerifier.__init__.__annotations__ if name not in {"keys", "clock", "return"}]
    assert [name for name, _ in told] == given
    defaults = dict(told)
    assert defaults["exchange"] == f"`{DEFAULT_EXCHANGE}`"
    assert defaults["max_future"] == f"{DEFAULT_MAX_FUTURE:g} s"
    assert {*get_args(Route)} - {*DEFAULT_ROUTES} == {"unrecorded"}


def test_what_a_handler_gets_is_told_whole() -> None:
    told = set(re.findall(r"`(\w+)`", section("What a handler gets")))
    for kind in (JobCompleted, JobFailed, JobResult):
        assert {each.name for each in fields(kind)} <= told
    assert {"product", "event_id", "completed_at_ns"} <= told


def test_the_public_names_are_a_sorted_list_of_what_there_is() -> None:
    names = inbox.fetcher.__all__
    assert names == sorted(names)
    assert all(hasattr(inbox.fetcher, name) for name in names)
