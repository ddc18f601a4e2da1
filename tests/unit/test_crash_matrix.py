"""`docs/crash-matrix.md` is what the suite says, and the suite has every test that it names."""

import ast

import pytest

from inbox.core.crashpoints import crash_points
from inbox.core.lifecycle import COMMANDS
from tests.crash import matrix
from tests.mutations.trial import ROOT

#: Files of which every test has a place on the page.
WHOLE = ("test_packet_cuts", "test_session_kills", "test_zombies", "test_delivery_limit", "test_outside_kills")
#: Shown by others, with a worker that is killed besides.
ELSEWHERE = {"test_the_answer_to_commit_is_lost_and_nobody_is_killed"}


def defined_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def test_the_page_is_what_the_suite_says() -> None:
    assert matrix.PAGE.read_text("utf-8") == matrix.page(), "write it anew: python -m tests.crash.matrix"


def test_every_command_has_its_row_and_every_point_its_line() -> None:
    assert {*matrix.STEPS} == {*COMMANDS.values()}
    for point in crash_points():
        assert f"| `{point}` |" in matrix.page()


@pytest.mark.parametrize("test", sorted({test for test in matrix.tests() if "conformance" not in test}))
def test_a_test_that_is_named_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert name in defined_in(file)


@pytest.mark.parametrize("name", WHOLE)
def test_no_test_is_forgotten(name: str) -> None:
    file = f"tests/crash/{name}.py"
    told = {test.partition("::")[2] for test in matrix.tests() if test.startswith(file)}
    assert defined_in(file) - ELSEWHERE <= told
