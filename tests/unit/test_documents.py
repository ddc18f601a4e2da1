"""What the documents say is what the code does."""

import re
from pathlib import Path

from inbox.core.lifecycle import COMMANDS, TRANSITIONS, State

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
