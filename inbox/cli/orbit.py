"""`inbox orbit`: leased subscriptions over a WebSocket, `orbit.events.v1`.

Each command is a file of its own and is added here.
"""

from __future__ import annotations

import typer

from inbox.cli.orbit_serve import serve

app = typer.Typer(
    name="orbit",
    no_args_is_help=True,
    help="""Leased subscriptions over a WebSocket (`orbit.events.v1`).

    `serve` runs a reference server, for trying a consumer and for its tests.
    """,
)
app.command()(serve)


@app.callback()
def orbit() -> None:
    """Keep `serve` a command of its own: a group of one would be that command."""
