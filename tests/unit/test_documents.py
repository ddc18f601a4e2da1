"""What the documents say is what the code does."""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.orm import Session

import inbox
from inbox.core.lifecycle import COMMANDS, TRANSITIONS, State
from inbox.testing.memory import MemoryStore

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


def test_every_file_that_a_document_names_exists() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for name in re.findall(r"`((?:inbox|tests|schema|examples|docs|benchmarks)/[\w./*-]*)`", document.read_text()):
            assert list(ROOT.glob(name.rstrip("/"))), f"{document.name} names {name}"


def test_the_readmes_programs_are_what_the_package_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:password@host/database")
    monkeypatch.setenv("AMQP_URL", "amqp://guest:guest@host/")
    models = ModuleType("billing.models")
    monkeypatch.setattr(models, "Entry", object, raising=False)
    monkeypatch.setitem(sys.modules, "billing", ModuleType("billing"))
    monkeypatch.setitem(sys.modules, "billing.models", models)
    names: dict[str, Any] = {"Session": Session}
    functions, methods, consumer = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(functions, names)  # noqa: S102 - a program of ours
    assert [handler.event_type for handler in names["inbox"].registry] == ["studio.lerian.job.completed"]
    exec(methods, names | {"inbox": inbox.Inbox("billing", store=MemoryStore())})  # noqa: S102 - as above
    compile(consumer, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for program in (functions, methods):
        for imported in re.findall(r"^from inbox import (.+)$", program, re.MULTILINE):
            assert set(imported.split(", ")) <= set(inbox.__all__)
