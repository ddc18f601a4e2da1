"""Making a mistake in a copy of the project, and asking a test whether it sees it."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.catalog import Mutation

ROOT = Path(__file__).parents[2]
#: What a test of the copy needs.
_COPIED = ("inbox", "tests", "schema", "examples")
_FILES = ("pyproject.toml", "docker-compose.yml")
#: Seconds, after which a mutation counts as survived: a test that waits for ever tells nobody anything.
PATIENCE = 150
#: pytest's exit code where tests ran, and some failed (pytest manual, "Exit codes").
_FAILED = 1


class StalePatchError(Exception):
    """The text of a mutation does not stand in its file exactly once: the mutation must follow the code."""


@dataclass(frozen=True)
class Trial:
    """How a test went in a copy.

    Attributes:
        code: pytest's exit code; None where it did not end in time.
        seconds: how long it took.
        said: what it wrote.
    """

    code: int | None
    seconds: float
    said: str

    @property
    def is_caught(self) -> bool:
        """Whether a test ran and failed; a copy that cannot even be collected is no catch."""
        return self.code == _FAILED and "\nFAILED " in self.said

    @property
    def why(self) -> str:
        """The line in which pytest sums the failure up."""
        lines = [line for line in self.said.splitlines() if line.startswith("FAILED ")]
        return lines[0].partition(" - ")[2] if lines else ""


def mutate(mutation: Mutation, root: Path) -> None:
    """Change the files below `root`.

    Raises:
        StalePatchError: a text is not there, or more than once.
    """
    for hunk in mutation.hunks:
        path = root / hunk.file
        text = path.read_text("utf-8")
        if (times := text.count(hunk.old)) != 1:
            raise StalePatchError(f"{mutation}: its text stands in {hunk.file} {times} times, not once")
        path.write_text(text.replace(hunk.old, hunk.new), "utf-8")


@contextmanager
def copied() -> Iterator[Path]:
    """The project in a folder of its own, compiled files included: only what is changed is compiled anew."""
    with tempfile.TemporaryDirectory(prefix="inbox-mutation-") as folder:
        root = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("node_modules", "build"))
        for name in _FILES:
            shutil.copy2(ROOT / name, root / name)
        yield root


def ask(tests: Sequence[str], root: Path, environment: Mapping[str, str], patience: float = PATIENCE) -> Trial:
    """Run tests in the copy, against servers that the environment names."""
    env = os.environ | dict(environment) | {"PYTHONPATH": str(root), "PYTEST_ADDOPTS": ""}
    where = subprocess.run(
        [sys.executable, "-c", "import inbox; print(inbox.__file__)"],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(root.resolve()), "the tests would run the package itself"
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(
        command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        said, _ = process.communicate(timeout=patience)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.terminate()
        said, code = process.communicate()[0], None
    return Trial(code, time.monotonic() - began, said)


def try_mutation(mutation: Mutation, pair: str, environment: Mapping[str, str]) -> Trial:
    """Make the mistake in a copy, and run its test there on one pair of servers."""
    with copied() as root:
        mutate(mutation, root)
        return ask([id_of(mutation, pair)], root, environment)


def id_of(mutation: Mutation, pair: str) -> str:
    """The id of its test on this pair of servers."""
    return mutation.test.replace("PAIR", pair)
