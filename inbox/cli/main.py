"""The `inbox` command."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from inbox.cli.crash_test import crash_test
from inbox.cli.demo import demo
from inbox.cli.fetcher import app as fetcher_app
from inbox.cli.orbit import app as orbit_app
from inbox.cli.prune import prune
from inbox.cli.publish import publish
from inbox.cli.quarantine import app as quarantine_app
from inbox.cli.run import run
from inbox.cli.schema import app as schema_app
from inbox.cli.status import status

#: The order in which the help lists the commands: that in which somebody who begins meets them.
_ORDER = ("demo", "schema", "run", "status", "quarantine", "prune", "publish", "crash-test", "fetcher", "orbit")


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


app = typer.Typer(
    name="inbox",
    cls=_InOrder,
    help="Exactly-once database effects for event consumers: run workers, look after their tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # wraps paragraphs as the terminal is wide
)
app.command()(demo)
app.command()(run)
app.command()(status)
app.command()(prune)
app.command()(publish)
app.command()(crash_test)
app.add_typer(schema_app, name="schema")
app.add_typer(quarantine_app, name="quarantine")
app.add_typer(fetcher_app, name="fetcher")
app.add_typer(orbit_app, name="orbit")


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
