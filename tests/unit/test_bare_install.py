"""The `inbox` command where the extra that it needs is not installed."""

import subprocess
import sys

# What a bare installation looks like to the import system.
WITHOUT_EXTRA = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {"typer", "rich"} else found(name, package)
from inbox.cli import main
main()
"""


def test_it_says_how_to_get_the_command_line_and_fails_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRA], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "inbox: the command line needs typer and rich: pip install 'idempotent-inbox[cli]'\n"
