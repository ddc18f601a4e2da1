"""What the documents say is what the code does."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import inbox
from inbox.config import ConsumerSettings
from inbox.core.disposition import FailureKind
from inbox.core.lifecycle import COMMANDS, TRANSITIONS, State
from inbox.errors import Refused
from inbox.testing.memory import MemoryStore
from tests.documents.markdown import documents

ROOT = Path(__file__).parents[2]


def diagram() -> str:
    lines = ["stateDiagram-v2", f"    [*] --> {_name(State.RECEIVED)}"]
    for state, command in COMMANDS.items():
        lines += [
            f"    {_name(state)} --> {_name(target)}: {command.value}, {outcome.value}"
            for (source, outcome), target in TRANSITIONS.items()
            if source is state
        ]
    return "\n".join(lines)


def _name(state: State) -> str:
    return state.name.lower()


def test_the_state_diagram_is_the_table() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    found = re.search(r"```mermaid\n(.*?)\n```", text, re.DOTALL)
    assert found is not None
    assert found.group(1) == diagram(), f"write this into docs/architecture.md:\n{diagram()}"


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_file_that_a_document_names_exists() -> None:
    for document in documents():
        for name in re.findall(r"`((?:inbox|tests|schema|examples|docs|benchmarks)/[\w./*-]*)`", document.read_text()):
            assert list(ROOT.glob(name.rstrip("/"))), f"{document.name} names {name}"


def test_every_test_that_the_readme_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "README.md").read_text())
    assert len(named) >= 9
    for path, name in named:
        assert name in functions_of(ROOT / path), f"README.md: {path} has no {name}"


def test_the_readmes_programs_are_what_the_package_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:password@host/database")
    monkeypatch.setenv("AMQP_URL", "amqp://guest:guest@host/")
    names: dict[str, Any] = {}
    program, methods, consumer, kill = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(program, names)  # noqa: S102 - a program of ours
    assert [handler.event_type for handler in names["inbox"].registry] == ["order.paid"]
    exec(methods, names | {"inbox": inbox.Inbox("billing", store=MemoryStore())})  # noqa: S102 - as above
    compile(consumer, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    exec(kill, names)  # noqa: S102 - as above
    assert callable(names["test_killed_anywhere"])
    for block in (program, methods):
        for imported in re.findall(r"^from inbox import (.+)$", block, re.MULTILINE):
            assert set(imported.split(", ")) <= set(inbox.__all__)


# ---------------------------------------------------------------- docs/failures.md
FAILURES = (ROOT / "docs/failures.md").read_text()
#: Attributes that CloudEvents 1.0 demands.
REQUIRED = ("id", "source", "type", "specversion")


def rows() -> list[list[str]]:
    """The cells of every row of the table."""
    lines = [line for line in FAILURES.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| what |")]


def refusal_codes() -> set[str]:
    """Every code that a refusal of ours has: those of the classes, and those that are given where one is raised."""
    sources = [path for path in (ROOT / "inbox").rglob("*.py") if "testing" not in path.parts]
    given = {code for path in sources for code in re.findall(r'code="([a-z-]+)"', path.read_text())}
    classes: list[type[Refused]] = [Refused, *Refused.__subclasses__()]
    return given | {each.code for each in classes} | {f"missing-{name}" for name in REQUIRED}


def test_every_failure_has_a_test_that_exists() -> None:
    assert len(rows()) > 50
    for what, *_, shown_by in rows():
        found = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown_by)
        assert found is not None, f"{what}: no test is named"
        path, name = found.groups()
        assert name in functions_of(ROOT / path), f"{what}: {path} has no {name}"


def test_every_kind_of_failure_is_told() -> None:
    told = {word for _, kind, *_ in rows() for word in re.findall(r"`([a-z-]+)`", kind)}
    assert told == {kind.value for kind in FailureKind}


def test_every_refusal_is_told_with_its_code() -> None:
    told = {word for *_, reasons, _ in rows() for word in re.findall(r"`([a-z-]+)`", reasons)}
    assert refusal_codes() <= told, f"say in docs/failures.md: {refusal_codes() - told}"


def test_the_program_of_the_failures_is_what_the_package_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:password@host/database")
    names: dict[str, Any] = {}
    (program,) = re.findall(r"```python\n(.*?)```", FAILURES, re.DOTALL)
    exec(program, names)  # noqa: S102 - a program of ours
    settings: ConsumerSettings = names["inbox"].settings
    assert [handler.event_type for handler in names["inbox"].registry] == ["invoice.due"]
    assert settings.retry.steps == (1, 5, 10, 30, 60, 300)
    names["inbox"].registry.check()


def test_the_times_that_the_failures_tell_are_those_of_the_settings() -> None:
    settings = ConsumerSettings()
    horizon = round(settings.retry.horizon(settings.deadline) / 60)
    assert f"{horizon} minutes by default" in FAILURES
    for name in ("max_attempts", "immediate", "max_releases"):
        assert f"`{name}` ({getattr(settings.retry, name)}" in FAILURES
