"""The `inbox` command. It needs the extra `cli`; without it, the command says how to get it."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command; exits 2 with one line where its libraries are not installed."""
    if missing := [library for library in ("typer", "rich") if find_spec(library) is None]:
        sys.exit(_how_to_install(missing))
    from inbox.cli.main import app  # noqa: PLC0415 - needs what was just looked for

    app()


def _how_to_install(missing: list[str]) -> int:
    print(  # noqa: T201 - this is what the person at the terminal sees
        f"inbox: the command line needs {' and '.join(missing)}: pip install 'idempotent-inbox[cli]'", file=sys.stderr
    )
    return 2
