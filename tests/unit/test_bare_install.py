"""Where an extra is not installed, what needs it says so, and nothing else minds."""

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


WITHOUT_EMBEDDED = """
import sys
sys.modules["aiosqlite"] = None  # what makes an import fail as if it were not there
import inbox
print(inbox.MySQL.__name__)
try:
    inbox.SQLite
except ImportError as error:
    print(error)
try:
    inbox.Nothing
except AttributeError as error:
    print(error)
"""


def test_the_package_is_whole_without_the_embedded_adapter() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EMBEDDED], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        "MySQL",
        "inbox.SQLite needs aiosqlite: pip install 'idempotent-inbox[embedded]'",
        "module 'inbox' has no attribute 'Nothing'",
    ]


WITHOUT_ORBIT = """
import sys
sys.modules["websockets"] = None
import inbox
try:
    import inbox.adapters.websocket
except ImportError as error:
    print(error)
"""


def test_it_says_how_to_get_the_leased_subscription() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_ORBIT], capture_output=True, text=True, check=True)

    assert done.stdout == "inbox.adapters.websocket needs websockets: pip install 'idempotent-inbox[orbit]'\n"
