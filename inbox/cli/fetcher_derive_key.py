"""`inbox fetcher derive-key`: the keys that consumers may have, from the master key that they must not have."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inbox.cli.options import JsonOption, explaining, print_json
from inbox.errors import ConfigurationError
from inbox.fetcher.keys import EXTERNAL_KEY_VARIABLE, MASTER_KEY_VARIABLE, derive_keys

if TYPE_CHECKING:
    from inbox.fetcher.keys import DerivedKeys

COMMAND: Final = "fetcher derive-key"

#: Characters; the usual master key has 44.
_LONGEST: Final = 1 << 16


class Which(StrEnum):
    """The keys that can be printed alone."""

    EXTERNAL = "external"
    STORAGE = "storage"


OnlyOption = Annotated[
    Which | None,
    typer.Option("--only", help="Print this key alone, as hex and nothing else: for scripts.", show_default=False),
]
StdinOption = Annotated[
    bool,
    typer.Option("--stdin", help=f"Read the master key from standard input, also where {MASTER_KEY_VARIABLE} is set."),
]

_TEXT: Final = """\
External HMAC key (hex): {external}
    Verifies job events and the MACs of results. Give it to consumers, as {variable}.
    Whoever has it can forge both: HMAC is symmetric.

Storage encryption key (hex): {storage}
    Opens stored results (AES-256-GCM). Only for consumers that read them, as FETCHER_STORAGE_KEY; the rest need none.
"""


def derive_key(*, only: OnlyOption = None, stdin: StdinOption = False, as_json: JsonOption = False) -> None:
    """Derive the keys that a consumer may be given from Fetcher's master key.

    For operators, once for each deployment. The master key is read from APP_ENC_KEY, where Fetcher itself has it, or
    from standard input; never from an option, which other users of the machine could read. On a terminal it is asked
    for and not shown. It must be the very text that Fetcher is given: standard base64 with padding, of at least 32
    octets. What Fetcher refuses is refused here.

    The **external** key verifies messages, and is all that most consumers need. The **storage** key opens stored
    results. The other two keys of Fetcher, for its own messages and for data source passwords, are not derived: no
    consumer has a use for them. That is why a consumer gets derived keys and never the master key.

    Example: inbox fetcher derive-key

    Example: vault read -field=value fetcher/app-enc-key | inbox fetcher derive-key --stdin --only external

    Exit codes: 0 derived; 2 no master key, or none that Fetcher would take.

    **--json** prints one object with `external`, `storage` (hex) and `warning` (a sentence, or null).
    """
    with explaining(COMMAND):
        keys = derive_keys(_master_key(stdin=stdin))
    if keys.warning is not None:
        typer.secho(f"inbox {COMMAND}: warning: {keys.warning}", fg="yellow", err=True)
    if as_json:
        print_json({"external": keys.external.hex(), "storage": keys.storage.hex(), "warning": keys.warning})
    else:
        typer.echo(_text(keys, only), nl=only is not None)


def _text(keys: DerivedKeys, only: Which | None) -> str:
    if only is not None:
        return (keys.external if only is Which.EXTERNAL else keys.storage).hex()
    return _TEXT.format(external=keys.external.hex(), storage=keys.storage.hex(), variable=EXTERNAL_KEY_VARIABLE)


def _master_key(*, stdin: bool) -> str:
    """The text of the master key.

    Raises:
        ConfigurationError: it is nowhere.
    """
    given = os.environ.get(MASTER_KEY_VARIABLE)
    if given and not stdin:
        return given
    if sys.stdin.isatty():
        return str(typer.prompt("Master key (not shown)", hide_input=True, err=True))
    text = sys.stdin.read(_LONGEST)
    if not text:
        raise ConfigurationError(f"no master key: set {MASTER_KEY_VARIABLE}, or send it to standard input")
    return text
