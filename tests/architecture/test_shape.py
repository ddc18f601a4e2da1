"""What is public, where files lie, and how long they get."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.modules import PACKAGE, Module, modules
from tests.conftest import KINDS, TESTS

LONGEST_FILE = 600
LONGEST_FUNCTION = 80  # lines, with its docstring
PUBLIC_NAMES = Path(__file__).with_name("public_names.txt")


def by_name(module: Module) -> str:
    return module.name


def test_the_public_names_are_the_ones_that_are_listed() -> None:
    public = getattr(import_module("inbox"), "__all__", [])

    assert sorted(public) == PUBLIC_NAMES.read_text().split(), f"a name came or went: say so in {PUBLIC_NAMES.name}"


def test_every_public_name_can_be_imported() -> None:
    package = import_module("inbox")

    assert [name for name in getattr(package, "__all__", []) if not hasattr(package, name)] == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in PACKAGE.rglob("*.py")}), ids=lambda path: path.name)
def test_every_folder_is_a_package(folder: Path) -> None:
    assert (folder / "__init__.py").exists()


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("module", modules(), ids=by_name)
def test_no_file_is_longer_than_can_be_read_at_once(module: Module) -> None:
    assert len(module.source.splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("module", modules(), ids=by_name)
def test_no_function_is_longer_than_a_screen(module: Module) -> None:
    functions = [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    long = {node.name: int(node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: lines for name, lines in long.items() if lines > LONGEST_FUNCTION} == {}


def test_every_test_is_of_a_kind() -> None:
    """A file outside the folders of kinds would have no marker, and be missing wherever one is asked for."""
    strays = [path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in KINDS]

    assert strays == []
