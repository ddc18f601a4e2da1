"""`inbox fetcher`: keys, messages and jobs of the one provider that `inbox.fetcher` knows.

Each command is a file of its own and is added here.
"""

from __future__ import annotations

import typer

app = typer.Typer(
    name="fetcher",
    no_args_is_help=True,
    help="""Job events of Fetcher: keys for them, and why a message is or is not accepted.""",
)
