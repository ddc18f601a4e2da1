"""`inbox fetcher verify`: why a message is or is not accepted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from inbox.adapters.rabbitmq.delivery import origin_of
from inbox.cli.option_groups import grouped
from inbox.cli.options import ATTENTION, OK, JsonOption, explaining, print_json, printable
from inbox.cli.quarantine_file import LineRefused, read_line
from inbox.config import require
from inbox.core.delivery import Delivery
from inbox.core.typed_json import load_headers
from inbox.errors import ConfigurationError
from inbox.fetcher.explanation import explain
from inbox.fetcher.keys import EXTERNAL_KEY_VARIABLE, FetcherKeys
from inbox.fetcher.verifier import DEFAULT_EXCHANGE, DEFAULT_ROUTES, FetcherVerifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.fetcher.explanation import Explanation

COMMAND: Final = "fetcher verify"

KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar=EXTERNAL_KEY_VARIABLE,
        metavar="HEX[,HEX...]",
        help="External HMAC keys. Better in the environment, for other users of the machine can read the options of a "
        "command.",
        show_default=False,
        show_envvar=True,
    ),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="Read the keys from a file, one a line.", show_default=False),
]
ExchangeOption = Annotated[
    str | None,
    typer.Option(
        "--exchange", metavar="NAME", help="That the broker shows with the message; may be empty.", show_default=False
    ),
]
RoutingKeyOption = Annotated[
    str | None,
    typer.Option("--routing-key", metavar="KEY", help="That the broker shows with the message.", show_default=False),
]
HeadersOption = Annotated[
    Path | None,
    typer.Option(
        "--headers",
        metavar="FILE",
        help='JSON: names, and for each a text, an integer or {"bytes": "text"}. See below.',
        show_default=False,
    ),
]
BodyOption = Annotated[
    Path | None,
    typer.Option("--body", metavar="FILE", help="The body's very octets, as they came.", show_default=False),
]
ExportedOption = Annotated[
    Path | None,
    typer.Option(
        "--exported",
        metavar="FILE",
        help="A line of `inbox quarantine export`, in the place of the four options before.",
        show_default=False,
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", metavar="TEXT", help="The only one that is expected; any without it.", show_default=False),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="TEXT", help="A ce-source that is expected; any without it. May be repeated."),
]
MaxAgeOption = Annotated[
    float | None,
    typer.Option("--max-age", min=0, metavar="SECONDS", help="Refuse what was signed longer ago.", show_default=False),
]
NowOption = Annotated[
    float | None,
    typer.Option("--now", metavar="UNIX", help="Take this for the time, in seconds; the clock's without it."),
]
WorkerExchangeOption = Annotated[
    str,
    typer.Option(
        "--worker-exchange",
        metavar="NAME",
        help="That the Workers publish to (RABBITMQ_JOB_EVENTS_EXCHANGE): tried for messages that died elsewhere.",
    ),
]
UnrecordedOption = Annotated[
    bool,
    typer.Option("--unrecorded", help="Try that exchange also where no header says that the message was moved."),
]
Allow1xOption = Annotated[bool, typer.Option("--allow-1x", help="Take the signature of 1.x too; a downgrade.")]


@dataclass(frozen=True, slots=True)
class Message:
    """Where the message is read from."""

    exchange: ExchangeOption = None
    routing_key: RoutingKeyOption = None
    headers: HeadersOption = None
    body: BodyOption = None
    exported: ExportedOption = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What a message has to be like, as the consumer's own verifier has it."""

    tenant: TenantOption = None
    source: SourceOption = None
    max_age: MaxAgeOption = None
    now: NowOption = None
    worker_exchange: WorkerExchangeOption = DEFAULT_EXCHANGE
    unrecorded: UnrecordedOption = False
    allow_1x: Allow1xOption = False


@grouped
def verify(
    *,
    key: KeyOption = None,
    key_file: KeyFileOption = None,
    message: Message,
    rules: Rules,
    as_json: JsonOption = False,
) -> None:
    """Say step by step why a job event is or is not accepted. Reads files only; no broker, no database.

    The steps are those of `FetcherVerifier`, and so is the verdict: **invalid** (no key has signed it as it stands
    here), **stale** (authentic and too old), **inconsistent** (authentic, and its headers belong to something else), or
    **accepted**. Where a signature does not hold, what would make it hold is tried and told: another spelling of the
    signature, another tenant, another route, a line end that an editor added.

    The file of --headers maps each name to a text (AMQP long string), an integer, or `{"bytes": "text"}` for a byte
    array, which every `ce-*` header is. `{"hex": "00ff"}` is a byte array that is no text, `{"unix": 1782397200}` an
    AMQP timestamp; true, null, 1.5, lists and tables are what they look like, so that `x-death` can be written.
    What the broker's own pages show as text may have been a byte array; the verdict is the same.

    Example: inbox fetcher verify --exchange fetcher.job.events --routing-key job.completed --headers h.json --body b

    Example: inbox quarantine export billing.app:inbox --digest 3f2a --output one.jsonl && inbox fetcher verify
    --exported one.jsonl

    Exit codes: 0 accepted, and only then; 1 not accepted; 2 a wrong option, a wrong key, or a file that cannot be read.

    **--json** prints one object with `verdict`, `reason` (a stable word, null where it is accepted), `event_id` (null
    where there is none that can be read), `steps` (each with `name`, `passed`, `said`) and `hints` (sentences).
    """
    with explaining(COMMAND):
        verifier = _verifier(_keys(key, key_file), rules)
        explanation = explain(verifier, _delivery(message))
    if as_json:
        print_json(_as_dict(explanation))
    else:
        for line in _lines(explanation):
            typer.echo(line)
    raise typer.Exit(OK if explanation.verdict == "accepted" else ATTENTION)


def _keys(key: str | None, file: Path | None) -> FetcherKeys:
    if file is not None:
        return FetcherKeys.from_file(file)
    if key is None:
        raise ConfigurationError(f"no key: --key, --key-file, or set {EXTERNAL_KEY_VARIABLE}")
    return FetcherKeys(key)


def _verifier(keys: FetcherKeys, rules: Rules) -> FetcherVerifier:
    now = rules.now
    clock: Callable[[], float] = time.time if now is None else lambda: now
    return FetcherVerifier(
        keys,
        exchange=rules.worker_exchange,
        tenant=rules.tenant,
        sources=rules.source,
        max_age=rules.max_age,
        routes=(*DEFAULT_ROUTES, *(("unrecorded",) if rules.unrecorded else ())),
        allow_1x=rules.allow_1x,
        clock=clock,
    )


# ------------------------------------------------------------------ the message
def _delivery(message: Message) -> Delivery:
    """The message that the options name.

    Raises:
        ConfigurationError: an option is missing or contradicts another, or a file holds something else.
        OSError: a file cannot be read.
    """
    parts = {
        "--exchange": message.exchange,
        "--routing-key": message.routing_key,
        "--headers": message.headers,
        "--body": message.body,
    }
    if message.exported is not None:
        written = [name for name, value in parts.items() if value is not None]
        require(not written, f"--exported beside {' and '.join(written)}: write the one or the others")
        return _exported(message.exported)
    if missing := [name for name, value in parts.items() if value is None]:
        raise ConfigurationError(f"{' and '.join(missing)} missing: or --exported, for what is in quarantine")
    assert message.headers is not None  # noqa: S101 - these four were just looked at; for the type checker
    assert message.body is not None  # noqa: S101
    assert message.exchange is not None  # noqa: S101
    assert message.routing_key is not None  # noqa: S101
    headers = _headers(message.headers)
    return Delivery(
        body=message.body.read_bytes(),
        headers=headers,
        origin=origin_of(headers, message.exchange, message.routing_key),
    )


def _exported(file: Path) -> Delivery:
    with file.open("rb") as lines:
        first = lines.readline()
    try:
        return read_line(first).whole.delivery
    except LineRefused as refused:
        raise ConfigurationError(f"{file}: line 1 is none of an export: {refused}") from None


def _headers(file: Path) -> dict[str, object]:
    try:
        parsed = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise ConfigurationError(f"{file}: not JSON in UTF-8") from None
    if not isinstance(parsed, dict):
        raise ConfigurationError(f"{file}: the headers must be one JSON object")
    headers: dict[str, object] = {}
    for name, value in parsed.items():
        try:
            headers[name] = _value(value)
        except (ValueError, TypeError, OverflowError, OSError, RecursionError):
            raise ConfigurationError(
                f"{file}: the header {printable(name)} is none: a text, an integer, or an object such as "
                '{"bytes": "text"}'
            ) from None
    return headers


def _value(value: Any) -> object:
    """A header's value as aio-pika hands it over.

    Raises:
        ValueError, TypeError, OverflowError, OSError: it is none.
    """
    if isinstance(value, list):
        return [_value(member) for member in value]
    return _object(value) if isinstance(value, dict) else value


def _object(value: dict[str, Any]) -> object:
    match value:
        case {"bytes": str() as text, **others} if not others:
            return bytearray(text, "utf-8")
        case {"hex": str() as digits, **others} if not others:
            return bytearray.fromhex(digits)
        case {"unix": int() as seconds, **others} if not others:
            return datetime.fromtimestamp(seconds, UTC)
        case {"t": str(), "v": _, **others} if not others:  # as the quarantine writes them
            return load_headers(json.dumps({"it": value}).encode())["it"]
        case _:
            return {name: _value(member) for name, member in value.items()}


# ------------------------------------------------------------------ output
def _as_dict(explanation: Explanation) -> Mapping[str, object]:
    return {
        "verdict": explanation.verdict,
        "reason": explanation.reason,
        "event_id": explanation.event_id,
        "steps": [{"name": step.name, "passed": step.passed, "said": step.said} for step in explanation.steps],
        "hints": [*explanation.hints],
    }


def _lines(explanation: Explanation) -> list[str]:
    width = max(len(step.name) for step in explanation.steps)
    lines = [f"{'ok' if step.passed else 'NO'}  {step.name:<{width}}  {step.said}" for step in explanation.steps]
    lines += [f"    hint: {hint}" for hint in explanation.hints]
    reason = "" if explanation.reason is None else f" ({explanation.reason})"
    return [printable(line) for line in (*lines, f"{explanation.verdict}{reason}")]
