"""The `inbox` command."""

from __future__ import annotations

import typer

from inbox.cli.run import run
from inbox.cli.schema import app as schema_app

app = typer.Typer(
    name="inbox",
    help="Exactly-once database effects for event consumers: run workers, look after their tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.add_typer(schema_app, name="schema")
