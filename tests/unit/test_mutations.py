"""The list of mutations is current: each applies to the code as it is, and the test that finds it exists."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.mutations.catalog import MUTATIONS, Hunk, Mutation
from tests.mutations.trial import ROOT, StalePatchError, Trial, mutate

STORE = ROOT / "inbox" / "testing" / "conformance"


def copy_of(mutation: Mutation, folder: Path) -> None:
    for hunk in mutation.hunks:
        (folder / hunk.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / hunk.file, folder / hunk.file)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_it_applies_once_and_leaves_a_program(mutation: Mutation, tmp_path: Path) -> None:
    copy_of(mutation, tmp_path)
    mutate(mutation, tmp_path)
    for hunk in mutation.hunks:
        ast.parse((tmp_path / hunk.file).read_text("utf-8"))
        assert (tmp_path / hunk.file).read_text("utf-8") != (ROOT / hunk.file).read_text("utf-8")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_test_that_finds_it_exists(mutation: Mutation) -> None:
    file, _, rest = mutation.test.partition("::")
    name = rest.partition("[")[0].rpartition("::")[2]
    assert "PAIR" in rest, "on either pair of servers"
    places = [ROOT / file, *(STORE.glob("store*.py") if "conformance" in file else ())]
    defined = {
        node.name
        for place in places
        for node in ast.walk(ast.parse(place.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert name in defined


def test_names_are_of_their_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 8


@pytest.mark.parametrize(("old", "times"), [("never there", 0), ("import", 3)])
def test_a_text_that_is_not_there_once_is_out_of_date(tmp_path: Path, old: str, times: int) -> None:
    (tmp_path / "made.py").write_text("import a\nimport b\nimport c\n")
    stale = Mutation("stale", "", (Hunk("made.py", old, "x"),), "")
    with pytest.raises(StalePatchError, match=f"stale: its text stands in made.py {times} times, not once"):
        mutate(stale, tmp_path)


@pytest.mark.parametrize(
    ("code", "said", "is_caught"),
    [
        (1, ".\nFAILED tests/x.py::test_y - AssertionError: lost\n", True),
        (0, "1 passed", False),
        (1, "ERROR tests/x.py - fixture", False),
        (2, "\nFAILED x", False),
        (4, "ERROR: not found", False),
        (None, "", False),
    ],
)
def test_only_a_test_that_failed_has_caught_something(code: int | None, said: str, is_caught: bool) -> None:
    trial = Trial(code, 1.0, said)
    assert trial.is_caught is is_caught
    assert trial.why == ("AssertionError: lost" if is_caught else trial.why)
