"""`inbox publish`: CloudEvents from a file, to an exchange, each known to be in a queue or told of."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from inbox.adapters.rabbitmq import Publisher, RabbitMQSettings, TlsSettings
from inbox.cli.options import (
    ATTENTION,
    OK,
    DryRunOption,
    Interruption,
    JsonOption,
    Progress,
    ProgressOption,
    explaining,
    interruptible,
    print_json,
    progress,
    run,
    stop,
)
from inbox.core.cloudevents import Encoded, Mode, decode, encode
from inbox.core.delivery import Delivery
from inbox.core.json_format import MEDIA_TYPE
from inbox.errors import ConfigurationError, TransportError, Undecodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Messages that are on their way at once: enough to fill a link, and few enough to be told one by one.
_WINDOW: Final = 200
#: Failures in a row after which no more is sent: the broker has gone, or nothing is bound.
_MOST_FAILURES: Final = 50
#: Lines that are told; the rest is counted.
_MOST_TOLD: Final = 20
#: Octets of a name or routing key (AMQP 0-9-1, short string).
_SHORT_OCTETS: Final = 255


@dataclass(slots=True)
class Outcome:
    """What became of the events so far.

    Attributes:
        lines: lines that hold an event.
        invalid: lines that were left out.
        confirmed: messages that are in a queue for certain.
        failed: messages that are not, or of which nobody knows, by their line.
        reasons: how many failed why.
        interrupted: whether somebody ended it before all were sent.
        given_up: whether it ended because nothing was confirmed any more.
        seconds: how long it took.
    """

    lines: int = 0
    invalid: int = 0
    confirmed: int = 0
    failed: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    interrupted: bool = False
    given_up: bool = False
    seconds: float = 0.0

    def as_dict(self, messages: int) -> dict[str, Any]:
        """As one JSON object; its keys are a promise, written down in the help of the command."""
        failed = self.failed.total()
        return {
            "lines": self.lines,
            "invalid": self.invalid,
            "messages": messages,
            "confirmed": self.confirmed,
            "unconfirmed": failed,
            "not_sent": messages - self.confirmed - failed,
            "failed_lines": sorted(self.failed),
            "reasons": dict(self.reasons),
            "interrupted": self.interrupted,
            "given_up": self.given_up,
            "seconds": round(self.seconds, 3),
        }


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="JSONL: a CloudEvent in JSON format on each line; - reads stdin.")
]
BrokerOption = Annotated[
    str,
    typer.Option(
        "--broker",
        envvar="INBOX_BROKER_URL",
        metavar="URL",
        help="amqp://user:password@host:5672/vhost; amqps:// asks for TLS.",
        show_default=False,
        show_envvar=True,
    ),
]
BrokerCaOption = Annotated[
    Path | None, typer.Option("--broker-ca", metavar="FILE", help="Trust this certificate authority. Asks for TLS.")
]
ExchangeOption = Annotated[
    str, typer.Option("--exchange", metavar="NAME", help="Where to; '' routes to the queue that --routing-key names.")
]
RoutingKeyOption = Annotated[
    str | None,
    typer.Option("--routing-key", metavar="KEY", help="Of every event. Else each has its type.", show_default=False),
]
StructuredOption = Annotated[
    bool, typer.Option("--structured", help="Send the JSON object, not attributes in headers and data as the body.")
]
RepeatOption = Annotated[
    int, typer.Option("--repeat", min=1, metavar="N", help="Publish each event so often: duplicates on purpose.")
]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, metavar="N", help="Messages a second at most.", show_default=False)
]
SkipInvalidOption = Annotated[
    bool, typer.Option("--skip-invalid", help="Tell of lines that hold no event, and publish the others.")
]


def publish(
    *,
    file: FileArgument,
    broker: BrokerOption,
    exchange: ExchangeOption,
    routing_key: RoutingKeyOption = None,
    structured: StructuredOption = False,
    repeat: RepeatOption = 1,
    rate: RateOption = None,
    skip_invalid: SkipInvalidOption = False,
    broker_ca: BrokerCaOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    show_progress: ProgressOption = None,
) -> None:
    """Publish CloudEvents from a file: for tests, for repairs, and to see what duplicates do.

    All lines are read and checked before the first is sent: one that holds no event ends the command, unless
    --skip-invalid is given. Each message is persistent, mandatory and confirmed: what is told as confirmed is in a
    queue. What is told as unconfirmed may be there or not; publishing it again does no harm to a consumer with an
    inbox. Ctrl-C sends nothing more, waits for what is on its way, and tells how far it came.

    After 50 failures in a row it gives up.

    Exit codes: 0 all confirmed; 1 some were not, or were not sent; 2 a wrong option, a line that holds no event, or
    no connection.

    Example: inbox publish --exchange jobs events.jsonl

    Example: echo '{"specversion":"1.0","id":"1","source":"/me","type":"job.completed","data":{"n":1}}' | inbox publish
    --exchange '' --routing-key billing --repeat 3 -

    **--json** prints one object: `lines`, `invalid`, `messages` (lines times --repeat), `confirmed`, `unconfirmed`,
    `not_sent`, `failed_lines`, `reasons` (how many messages failed why), `interrupted`, `given_up` (nothing was
    confirmed any more), `seconds`.
    """
    with explaining("publish"), _opened(file) as source:
        _check_short("--exchange", exchange)
        _check_short("--routing-key", routing_key or "")
        tls = None if broker_ca is None else TlsSettings(ca=str(broker_ca))
        publisher = Publisher(broker, RabbitMQSettings(tls=tls))
        events = Events(source, "structured" if structured else "binary", routing_key)
        outcome = Outcome(*_checked(events, goes_on=skip_invalid))
        messages = outcome.lines * repeat
        if not dry_run:
            job = Job(publisher, exchange, events, outcome, repeat=repeat, rate=rate)
            try:
                with progress("publish", "messages confirmed", total=messages, shown=show_progress) as bar:
                    run("publish", lambda: job.run(bar))
            except typer.Exit:
                if job.has_begun:
                    _report(outcome, messages, as_json=as_json)
                raise
    if dry_run and not as_json:
        typer.echo(f"Dry run: {messages:,} messages of {outcome.lines:,} events would be published.")
    else:
        _report(outcome, messages, as_json=as_json)
    is_done = dry_run or outcome.confirmed == messages
    raise typer.Exit(OK if is_done and not outcome.invalid else ATTENTION)


# ------------------------------------------------------------------ reading
@dataclass(frozen=True, slots=True, repr=False)
class Line:
    """One line: the event that it holds, ready to go, or what is wrong with it."""

    number: int
    message: Encoded | None
    routing_key: str = ""
    problem: str = ""


class Events:
    """The lines of a file that are not blank. They are read anew each time: there may be more than memory holds.

    Args:
        source: can be read from its beginning again.
        mode: how each is to travel.
        routing_key: of each; None takes the event's type.
    """

    def __init__(self, source: IO[bytes], mode: Mode, routing_key: str | None) -> None:
        self._source = source
        self._mode = mode
        self._routing_key = routing_key

    def __iter__(self) -> Iterator[Line]:
        self._source.seek(0)
        for number, text in enumerate(self._source, start=1):
            if text.strip():
                yield self._line(number, text.rstrip(b"\r\n"))

    def _line(self, number: int, text: bytes) -> Line:
        try:
            event = decode(Delivery(text, {}, MEDIA_TYPE))
            key = event.type if self._routing_key is None else self._routing_key
            _check_short("its type, the routing key unless --routing-key is given,", key)
            return Line(number, encode(event, self._mode), key)
        except (Undecodable, ConfigurationError, ValueError) as error:
            return Line(number, None, problem=str(error))


def _check_short(what: str, text: str) -> None:
    """Raises `ConfigurationError` where `text` cannot be a name or routing key."""
    try:
        is_short = len(text.encode()) <= _SHORT_OCTETS
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} is no Unicode text") from None
    if not is_short:
        raise ConfigurationError(f"{what} is longer than {_SHORT_OCTETS} octets, which AMQP does not carry")


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """The file, or a copy of what can be read only once."""
    with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
        if source.seekable():
            yield source
            return
        with TemporaryFile() as copy:
            shutil.copyfileobj(source, copy)
            yield copy


def _checked(events: Events, *, goes_on: bool) -> tuple[int, int]:
    """Read all lines, and tell of those that hold no event.

    Returns:
        How many hold one, and how many do not.

    Raises:
        typer.Exit: with 2 where there are such, unless the others are to be published all the same.
    """
    valid = invalid = 0
    told: list[str] = []
    for line in events:
        if line.message is not None:
            valid += 1
            continue
        invalid += 1
        if len(told) < _MOST_TOLD:
            told.append(f"line {line.number}: {line.problem}")
    if invalid > len(told):
        told.append(f"and {invalid - len(told):,} lines more")
    if invalid and not goes_on:
        stop("publish", *told, "nothing was published. Fix: correct these lines, or --skip-invalid")
    for problem in told:
        typer.echo(f"inbox publish: left out: {problem}", err=True)
    return valid, invalid


# ------------------------------------------------------------------ sending
class Job:
    """One run of the command: sends, with a bounded number on their way, and notes what became of each.

    Args:
        publisher: not open yet.
        exchange: where to.
        events: what to send.
        outcome: where it is noted.
        repeat: how often each is sent.
        rate: messages a second at most; None is as fast as they are confirmed.

    Attributes:
        has_begun: whether there was a connection.
    """

    def __init__(
        self,
        publisher: Publisher,
        exchange: str,
        events: Events,
        outcome: Outcome,
        *,
        repeat: int,
        rate: float | None,
    ) -> None:
        self._publisher = publisher
        self._exchange = exchange
        self._events = events
        self._outcome = outcome
        self._repeat = repeat
        self._rate = rate
        self._room = asyncio.Semaphore(_WINDOW)
        self._failures_in_a_row = 0
        self.has_begun = False

    async def run(self, bar: Progress) -> None:
        """Send all, or until somebody ends it.

        Raises:
            StartupError, TransportError: there is no connection; nothing was sent.
        """
        async with self._publisher:
            self.has_begun = True
            began = time.monotonic()
            sending: set[asyncio.Task[None]] = set()
            try:
                with interruptible() as interruption:
                    await self._send(interruption, bar, sending)
                    if sending:
                        await asyncio.wait(sending)
            finally:
                self._outcome.seconds = time.monotonic() - began

    async def _send(self, interruption: Interruption, bar: Progress, sending: set[asyncio.Task[None]]) -> None:
        began = time.monotonic()
        for count, line in enumerate(self._messages()):
            if self._rate is not None:
                await interruption.wait(max(0.0, began + count / self._rate - time.monotonic()))
            await self._room.acquire()
            self._outcome.interrupted = interruption.is_asked
            self._outcome.given_up = self._failures_in_a_row >= _MOST_FAILURES
            if self._outcome.interrupted or self._outcome.given_up:
                return
            task = asyncio.create_task(self._publish(line, bar), name=f"line {line.number}")
            sending.add(task)
            task.add_done_callback(sending.discard)

    def _messages(self) -> Iterable[Line]:
        return (line for line in self._events if line.message is not None for _ in range(self._repeat))

    async def _publish(self, line: Line, bar: Progress) -> None:
        message = line.message
        assert message is not None  # noqa: S101 - `_messages`: others are not sent
        try:
            await self._publisher.publish(
                message.body,
                exchange=self._exchange,
                routing_key=line.routing_key,
                headers=message.headers,
                content_type=message.content_type,
            )
        except TransportError as error:
            self._outcome.failed[line.number] += 1
            self._outcome.reasons[str(error)] += 1
            self._failures_in_a_row += 1
        else:
            self._outcome.confirmed += 1
            self._failures_in_a_row = 0
            bar.advance()
        finally:
            self._room.release()


# ------------------------------------------------------------------ telling
def _report(outcome: Outcome, messages: int, *, as_json: bool) -> None:
    for reason, count in outcome.reasons.most_common():
        typer.echo(f"inbox publish: {count:,} not confirmed: {reason}", err=True)
    if outcome.failed:
        numbers = sorted(outcome.failed)
        more = f" and {len(numbers) - _MOST_TOLD:,} more" if len(numbers) > _MOST_TOLD else ""
        typer.echo(f"inbox publish: of lines {', '.join(map(str, numbers[:_MOST_TOLD]))}{more}", err=True)
    if as_json:
        print_json(outcome.as_dict(messages))
        return
    parts = [f"{outcome.confirmed:,} of {messages:,} messages confirmed"]
    if failed := outcome.failed.total():
        parts.append(f"{failed:,} not confirmed")
    if rest := messages - outcome.confirmed - failed:
        parts.append(f"{rest:,} not sent")
    if outcome.given_up:
        parts.append(f"given up after {_MOST_FAILURES} failures in a row: is the exchange there, and a queue bound?")
    elif outcome.interrupted:
        parts.append("interrupted")
    typer.echo(f"{', '.join(parts)} ({outcome.seconds:.1f} s)")
