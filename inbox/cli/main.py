"""The `inbox` command."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from inbox.cli.prune import prune
from inbox.cli.run import run
from inbox.cli.schema import app as schema_app

app = typer.Typer(
    name="inbox",
    help="Exactly-once database effects for event consumers: run workers, look after their tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # wraps paragraphs as the terminal is wide
)
app.command()(run)
app.command()(prune)
app.add_typer(schema_app, name="schema")


@app.callback(invoke_without_command=True)
def main(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Exactly-once database effects for event consumers: run workers, look after their tables."""
    if show_version:
        typer.echo(f"inbox {_version()}")
        raise typer.Exit


def _version() -> str:
    try:
        return version("idempotent-inbox")
    except PackageNotFoundError:
        return "of a checkout that is not installed"
