"""What stands in Markdown files: blocks of code, links, headings; each with its line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Block:
    """A block between fences; `line` is that of its first line, counted from 1."""

    file: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Link:
    """A link within the text."""

    file: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def blocks(file: Path, language: str) -> list[Block]:
    return [block for block in all_blocks(file) if block.language == language]


def all_blocks(file: Path) -> Iterator[Block]:
    began: tuple[int, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        if not line.lstrip().startswith("```"):
            inside.append(line)
        elif began is None:
            began, inside = (number + 1, line.strip().removeprefix("```").strip()), []
        else:
            yield Block(file, *began, "\n".join(inside) + "\n")
            began = None
    assert began is None, f"{file}:{began}: a block without an end"


def prose(file: Path) -> list[str]:
    """The lines of a file, those of its blocks left empty."""
    lines, is_code = [], False
    for line in file.read_text("utf-8").splitlines():
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        lines.append("" if is_code or is_fence else line)
    return lines


def links(file: Path) -> Iterator[Link]:
    for number, line in enumerate(prose(file), start=1):
        for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            yield Link(file, number, target)


def anchors(file: Path) -> set[str]:
    """The ids of the headings, by the rule that GitHub and the site agree on."""
    headings = (re.fullmatch(r"#+ (.+?)(?: #+)?", line) for line in prose(file))
    return {slug(heading.group(1)) for heading in headings if heading}


def slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def code_spans(file: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(prose(file), start=1):
        yield from ((number, span.replace("\\|", "|")) for span in re.findall(r"`([^`]+)`", line))
