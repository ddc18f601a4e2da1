"""Which unit tests no library can change, so that the run with the lowest libraries need not repeat them.

Such a file imports of this project the pure core alone (`inbox.core`, `inbox.errors`), besides it pytest and the
standard library, and starts no other program. What it imports of the tests is held to the same. tests/architecture
proves that the core itself imports the standard library alone, so a library of any version is nowhere in what these
tests run; the newest libraries' run has each of them. Every other file runs with both.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Parts of the standard library that may bring in anything, or start a program that does.
OPEN_ENDED = {"asyncio", "importlib", "multiprocessing", "os", "pkgutil", "runpy", "subprocess"}


@cache
def is_pure(file: Path) -> bool:
    """Whether what the file tests is the core, and nothing that it imports is a library."""
    found = [*_imported(file)]
    return any(_is_core(name) for name in found) and all(_is_harmless(name) for name in found)


def _imported(file: Path, seen: frozenset[Path] = frozenset()) -> Iterator[str]:
    """The modules that the file names anywhere, and those that the tests' modules among them name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            module = _module_of_tests(name)
            if module is None:
                yield name
            elif module != file and module not in seen:
                yield from _imported(module, seen | {file})


def _module_of_tests(name: str) -> Path | None:
    """The file of `tests.unit.model`, also where a name within it was added."""
    if name.partition(".")[0] != "tests":
        return None
    for candidate in (name, name.rpartition(".")[0]):
        file = ROOT.joinpath(*candidate.split(".")).with_suffix(".py")
        if file.is_file():
            return file
    return None


def _is_core(name: str) -> bool:
    return f"{name}.".startswith(("inbox.core.", "inbox.errors."))


def _is_harmless(name: str) -> bool:
    top = name.partition(".")[0]
    return _is_core(name) or top == "pytest" or (top in sys.stdlib_module_names and top not in OPEN_ENDED)
