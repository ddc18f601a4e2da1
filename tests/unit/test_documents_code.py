"""Code in the documents is what Python and the commands take."""

import ast
import builtins
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import inbox
from tests.documents.markdown import ROOT, Block, blocks, code_spans, documents
from tests.documents.shell import commands_of, refusal, unknown

PROGRAMS = [block for file in documents() for block in blocks(file, "python")]
SCRIPTS = [block for file in documents() for block in blocks(file, "sh")]
#: What no installation has: tables of a reader's own.
THEIRS = "billing.models"


@pytest.fixture
def _world_of_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:password@host/database")
    monkeypatch.setenv("AMQP_URL", "amqp://guest:guest@host/")
    monkeypatch.setenv("ORBIT_URL", "wss://host/v1/events")
    monkeypatch.setenv("ORBIT_SUBSCRIPTION", "5" * 32)
    monkeypatch.setenv("ORBIT_CREDENTIAL", "bearer")
    models = ModuleType(THEIRS)
    monkeypatch.setattr(models, "Entry", object, raising=False)
    monkeypatch.setitem(sys.modules, "billing", ModuleType("billing"))
    monkeypatch.setitem(sys.modules, THEIRS, models)


def is_program(tree: ast.Module) -> bool:
    """Whether it stands alone: it takes nothing from elsewhere, and awaits nothing outside a function."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {*dir(builtins)}
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                made.add(node.name)
            case ast.arg():
                made.add(node.arg)
            case _:
                pass
    waits = any(isinstance(node, ast.AsyncWith | ast.AsyncFor) for node in tree.body)
    return not waits and {node.id for node in names} <= made


def compiled(block: Block) -> Any:
    """The program, with the file and the lines of the document for whoever reads a traceback."""
    text = "\n" * (block.line - 1) + block.text
    return compile(text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.usefixtures("_world_of_a_reader")
@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_compiles_and_runs_where_it_stands_alone(block: Block) -> None:
    code = compiled(block)
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "inbox":
            missing = {alias.name for alias in node.names} - {*inbox.__all__}
            assert not missing, f"{block.file.name}:{block.line + node.lineno - 1}: inbox has no {missing}"
    if is_program(tree):
        exec(code, {"__name__": "document"})  # noqa: S102 - a program of ours


def test_programs_that_stand_alone_are_run() -> None:
    """Whoever leaves an import out of one of these turns it into something that nobody tries."""
    alone = {block.file.name for block in PROGRAMS if is_program(ast.parse(block.text))}
    assert {"README.md", "index.md", "failures.md", "settings.md"} <= alone


@pytest.mark.parametrize("block", SCRIPTS, ids=str)
def test_a_script_gives_the_commands_what_they_take(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("INBOX_DATABASE_URL", "INBOX_BROKER_URL", "INBOX_CONSUMER"):  # what a page has set before
        monkeypatch.setenv(variable, "set")
    for line, arguments in commands_of(block):
        said = refusal(arguments)
        assert said is None, f"{block.file.name}:{line}: inbox {' '.join(arguments)}: {said}"


def test_scripts_are_not_overlooked() -> None:
    found = [arguments for block in SCRIPTS for _, arguments in commands_of(block)]
    assert len(found) > 10
    assert ["run", "shop.app:inbox", "--workers", "2"] in found
    assert ["prune", "billing.app:inbox", "--older-than", "90d", "--json"] in found


@pytest.mark.parametrize("file", documents(), ids=lambda file: file.name)
def test_commands_that_the_text_mentions_exist(file: Path) -> None:
    for line, span in code_spans(file):
        if re.match(r"inbox [a-z]", span):
            said = unknown(span.split()[1:])
            assert said is None, f"{file.relative_to(ROOT)}:{line}: {said}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("inbox run", "TARGET"),
        ("inbox run a:b --worker 2", "--worker"),
        ("inbox run a:b --workers 0", "--workers"),
        ("inbox quarantine discard --digest ab", "--because"),
        ("inbox quarantine lst", "lst"),
        ("inbox quarantine", "quarantine needs a command"),
        ("URL=x inbox runn a:b", "runn"),
        ("true && inbox publish --exchnge x > y", "--exchnge"),
    ],
)
def test_a_wrong_line_is_found(line: str, said: str) -> None:
    ((number, arguments),) = commands_of(Block(ROOT / "x.md", 7, "sh", f"# inbox nonsense\n{line}  # inbox\n"))
    assert number == 8
    assert said in str(refusal(arguments)).replace("\n", " ")


def test_lines_are_read_as_a_shell_reads_them() -> None:
    text = "A=1 inbox quarantine show 'a b' \\\n  --body | head\ninbox status && inbox status --json\npip install x\n"
    assert [arguments for _, arguments in commands_of(Block(ROOT / "x.md", 1, "sh", text))] == [
        ["quarantine", "show", "a b", "--body"],
        ["status"],
        ["status", "--json"],
    ]


@pytest.mark.parametrize(
    ("mention", "said"),
    [
        ("quarantine list|show|nope", "inbox quarantine has no command nope"),
        ("status --jsn", "inbox status has no option --jsn"),
        ("schema print|apply|check", None),
        ("prune --help", None),
        ("prune TARGET --older-than=90d", None),
    ],
)
def test_a_wrong_mention_is_found(mention: str, said: str | None) -> None:
    assert unknown(mention.split()) == said


@pytest.mark.parametrize(
    ("program", "stands_alone"),
    [
        ("import math\nx = math.pi\nfor y in [x]: print(y)", True),
        ("def f(a: int) -> int: return a\nclass C: pass\nf(C)", True),
        ("async with door: pass", False),
        ("import door\nasync with door: pass", False),
        ("print(undefined)", False),
        ("...", True),
    ],
)
def test_what_stands_alone_is_told_from_what_does_not(program: str, stands_alone: bool) -> None:
    assert is_program(ast.parse(program)) is stands_alone
