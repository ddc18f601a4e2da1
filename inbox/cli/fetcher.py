"""`inbox fetcher`: keys, messages and jobs of the one provider that `inbox.fetcher` knows.

Each command is a file of its own and is added here.
"""

from __future__ import annotations

import typer

from inbox.cli.fetcher_derive_key import derive_key
from inbox.cli.fetcher_pending import pending
from inbox.cli.fetcher_verify import verify

app = typer.Typer(
    name="fetcher",
    no_args_is_help=True,
    help="""Job events of Fetcher: keys for them, and why a message is or is not accepted.

    `derive-key` is for whoever runs Fetcher: it makes the keys that consumers are given. `verify` is for whoever asks
    why a message went into quarantine, or will. `pending` finds jobs whose event never came.
    """,
)
app.command("derive-key")(derive_key)
app.command()(verify)
app.command()(pending)
