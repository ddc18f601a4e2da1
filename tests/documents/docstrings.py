"""Docstrings as Markdown: paragraphs, and the sections that begin with a word and a colon."""

import inspect
import re
from dataclasses import dataclass, field

SECTIONS = ("Args", "Attributes", "Returns", "Raises")


@dataclass
class Docstring:
    """What a docstring says.

    `entries` are the names of a section with their texts; a text without a name stands under "".
    """

    text: str = ""
    entries: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def of(self, section: str, name: str) -> str:
        found = [text for names, text in self.entries.get(section, ()) if name in names.split(", ")]
        assert found, f"{section} of a docstring say nothing of {name}"
        return found[0]


def parse(docstring: str | None) -> Docstring:
    found = Docstring()
    paragraphs: list[str] = []
    section: str | None = None
    for line in inspect.cleandoc(docstring or "").splitlines():
        heading = line.removesuffix(":")
        if line.endswith(":") and heading in SECTIONS:
            section = heading
            found.entries[section] = []
        elif section is not None and (not line or line.startswith(" ")):
            _add(found.entries[section], line, named=section != "Returns")
        else:
            section = None
            paragraphs.append(line)
    found.text = fenced("\n".join(paragraphs).strip())
    return found


def _add(entries: list[tuple[str, str]], line: str, *, named: bool) -> None:
    if not line.strip():
        return
    if line.startswith(" " * 5) or (entries and not named):
        name, text = entries[-1]
        entries[-1] = (name, f"{text} {line.strip()}")
        return
    head = re.match(r" {4}(\w[\w., ]*): (.*)", line) if named else None
    entries.append((head.group(1), head.group(2)) if head else ("", line.strip()))


def fenced(text: str) -> str:
    """`text` with its indented examples between fences, so that they are coloured and tested like all others."""
    lines: list[str] = []
    example: list[str] = []
    is_fenced = False
    for line in [*text.splitlines(), ""]:
        is_fenced ^= line.startswith("```")
        begins = not lines or not lines[-1]
        if not is_fenced and line.startswith("    ") and (example or begins):
            example.append(line[4:])
        elif example and not line:
            example.append("")
        else:
            lines += _fence(example)
            example = []
            lines.append(line)
    lines += _fence(example)
    return "\n".join(lines).strip()


def _fence(example: list[str]) -> list[str]:
    return ["```python", *"\n".join(example).strip("\n").splitlines(), "```", ""] if any(example) else []


def cell(text: str) -> str:
    """`text` for one cell of a table. A bar in code is shown in one way by GitHub and in another by the site."""
    assert "|" not in text, f"say it without a bar: {text}"
    return " ".join(text.split())


def table(*rows: tuple[str, ...]) -> list[str]:
    """A table; the first row is its head."""
    head, *body = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return [head, f"|{'---|' * len(rows[0])}", *body, ""]


WRITTEN = "<!-- Written from the code by `python -m tests.documents`: change it there. -->"
