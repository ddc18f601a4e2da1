"""`inbox orbit serve`: a reference server to try consumers on."""

from __future__ import annotations

import ipaddress
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inbox.cli.logs import LogFormat, LogFormatOption, LogLevel, LogLevelOption, configure_logging
from inbox.cli.options import OK, explaining, interruptible, run
from inbox.errors import ConfigurationError

if TYPE_CHECKING:
    from inbox.testing.orbit_server import OrbitServer

_COMMAND: Final = "orbit serve"

HostOption = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes one that is free.")]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        dir_okay=False,
        help="Keep everything in this SQLite file, over the end of the server. Without it: in memory.",
        show_default=False,
    ),
]
QueueOption = Annotated[
    str, typer.Option("--queue", metavar="NAME", help="Have a subscription of this queue ready, and print its id.")
]
LeaseOption = Annotated[
    float, typer.Option("--lease", min=0.1, max=86_400, metavar="SECONDS", help="For how long an event is handed out.")
]
BudgetOption = Annotated[
    int, typer.Option("--budget", min=1, max=1_000_000, help="Hand-outs of an event, until it is EXPIRED.")
]
WindowOption = Annotated[
    int, typer.Option("--window", min=1, max=10_000, help="Open events of a subscription; EXPIRED ones are among them.")
]
FirstDelayOption = Annotated[
    float,
    typer.Option(
        "--first-delay",
        min=0.001,
        max=86_400,
        metavar="SECONDS",
        help="From the end of a lease to the next hand-out; it doubles each time.",
    ),
]
LongestDelayOption = Annotated[
    float, typer.Option("--longest-delay", min=0.001, max=86_400, metavar="SECONDS", help="Where doubling ends.")
]
NewIdsOption = Annotated[
    bool, typer.Option("--new-delivery-ids", help="Give each hand-out of an event a delivery id of its own.")
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Serve by TLS with this certificate, in PEM with its chain. Goes with --tls-key.",
        show_default=False,
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Its key, in PEM, without a password.",
        show_default=False,
    ),
]
PlainTextOption = Annotated[
    bool,
    typer.Option("--plain-text", help="Let credentials travel unencrypted to an address that others can reach."),
]
NewCredentialOption = Annotated[
    bool, typer.Option("--new-credential", help="Replace the operator's credential in a --file that has one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print what to connect with as one JSON object on a line.")]


def serve(
    *,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8910,
    file: FileOption = None,
    queue: QueueOption = "reports",
    lease: LeaseOption = 30.0,
    budget: BudgetOption = 5,
    window: WindowOption = 256,
    first_delay: FirstDelayOption = 1.0,
    longest_delay: LongestDelayOption = 60.0,
    new_delivery_ids: NewIdsOption = False,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    plain_text: PlainTextOption = False,
    new_credential: NewCredentialOption = False,
    as_json: JsonOption = False,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Serve leased subscriptions until SIGTERM or SIGINT: for trying, and for tests. It is no provider.

    On standard output it prints where to connect to, a credential and a subscription, as lines for a shell. The
    credential is generated and shown this once: what is kept of it is a digest. Everything else goes to standard error.

    Example: inbox orbit serve

    Example over a restart, with leases that end soon: inbox orbit serve --file orbit.db --lease 5 --budget 3

    Example of a task's result, in another terminal, with the lines that it printed: curl -H "Authorization: Bearer
    $ORBIT_CREDENTIAL" -d '{"task_id": "00000000000000000000000000000001", "status": "succeeded"}'
    $ORBIT_MANAGEMENT_URL/test/results/reports

    The management API makes and pauses subscriptions, lists events and adds to their budgets below /v1/subscriptions;
    what only tests do, such as turning the clock and setting switches that make the server fail, is below /test. All of
    it is in docs/orbit.md.

    Killed with SIGKILL, it has kept in --file what it had answered; leases go on, and end by its clock.

    Exit codes: 0 stopped as asked; 2 not started: a wrong option, a file that another server uses, or a port that is
    taken; 130 interrupted a second time.
    """
    configure_logging(log_level, log_format)
    with explaining(_COMMAND):
        tls = _tls(tls_certificate, tls_key)
        _check_reach(host, is_encrypted=tls is not None, is_wanted=plain_text)
        try:
            from inbox.testing.orbit_server import OrbitServer, OrbitServerSettings, Terms, check_queue  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"the server needs {error.name}: pip install 'idempotent-inbox[cli,orbit-server]'"
            ) from None
        terms = Terms(lease, first_delay, longest_delay)
        settings = OrbitServerSettings(
            *(host, port, file, terms, budget, window), new_delivery_ids=new_delivery_ids, tls=tls
        )
        check_queue(queue)
        server = OrbitServer(settings, new_credential=new_credential)
    run(_COMMAND, lambda: _serve(server, queue, as_json=as_json))
    raise typer.Exit(OK)


async def _serve(server: OrbitServer, queue: str, *, as_json: bool) -> None:
    with interruptible() as interruption:
        async with server:
            facts = {
                "url": server.url,
                "management_url": server.management_url,
                "credential": server.credential or None,
                "subscription": server.provider.operators_subscription(queue).id,
            }
            _show(facts, as_json=as_json)
            await interruption.wait()


def _show(facts: dict[str, str | None], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if value is None:
            typer.echo("# The credential was shown when the file was new; --new-credential makes another one.")
        else:
            typer.echo(f"export ORBIT_{name.upper()}='{value}'")


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What to serve by.

    Raises:
        ConfigurationError: one of the files is missing, or is none.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "--tls-certificate" if certificate is None else "--tls-key"
        raise ConfigurationError(f"{missing} is missing: --tls-certificate and --tls-key go together")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A password is not asked for: a server has nobody to ask.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"--tls-certificate {certificate} and --tls-key {key}: not PEM, not of each other, or with a password"
        ) from error
    return context


def _check_reach(host: str, *, is_encrypted: bool, is_wanted: bool) -> None:
    """Refuse to let credentials be read on the way, unless that is wanted.

    Raises:
        ConfigurationError: others reach the address, and there is no TLS.
    """
    if not is_encrypted and not is_wanted and not _is_loopback(host):
        raise ConfigurationError(
            f"--host {host}: others reach it, and credentials would be sent in plain text: add --tls-certificate and "
            "--tls-key, or --plain-text"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
