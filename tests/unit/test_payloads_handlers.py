"""Handlers that ask for a payload: what they may look like, and when it is decoded."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.core.event import CloudEvent, Event
from inbox.core.handler import Face, Handler, Wants
from inbox.core.policy import RetryPolicy
from inbox.errors import ConfigurationError, Contended, Unauthentic
from inbox.runtime.registry import Registry
from inbox.service import InboxService, handles
from tests.unit.engine import FAST, Engine, delivery

if TYPE_CHECKING:
    from inbox.core import event as elsewhere
    from tests.unit.test_payloads import Order


@dataclass(frozen=True)
class Job:
    rows: int


class Model(BaseModel):
    rows: int


async def event_only(event: Event, session: AsyncSession) -> None: ...
async def payload_only(job: Job, session: AsyncSession) -> None: ...
async def both(job: Job, event: Event, session: AsyncSession) -> None: ...
async def model_only(job: Model, connection: AsyncConnection) -> None: ...
async def in_text(job: "Job", event: "elsewhere.Event", session: "AsyncSession") -> None: ...
async def annotated(job: Annotated[Job, "finished"], event: Any, session: AsyncSession) -> None: ...
def plain(job: Job, session: Session) -> None: ...
def plain_both(job: Job, event: Event, session: Session) -> None: ...
async def unannotated(job: Job, event, session: AsyncSession) -> None: ...  # type: ignore[no-untyped-def]
async def object_first(event: object, session: AsyncSession) -> None: ...
async def deferred_event(event: "elsewhere.Event", session: AsyncSession) -> None: ...


@functools.wraps(both)
async def decorated(*arguments: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "face", "wants"),
    [
        (event_only, Face.SESSION, Wants.EVENT),
        (payload_only, Face.SESSION, Wants.PAYLOAD),
        (both, Face.SESSION, Wants.BOTH),
        (model_only, Face.CONNECTION, Wants.PAYLOAD),
        (in_text, Face.SESSION, Wants.BOTH),
        (annotated, Face.SESSION, Wants.BOTH),
        (plain, Face.SYNC_SESSION, Wants.PAYLOAD),
        (plain_both, Face.SYNC_SESSION, Wants.BOTH),
        (unannotated, Face.SESSION, Wants.BOTH),
        (decorated, Face.SESSION, Wants.BOTH),
        (object_first, Face.SESSION, Wants.EVENT),
        (deferred_event, Face.SESSION, Wants.EVENT),
    ],
)
def test_annotations_say_what_a_handler_gets(function: Callable[..., Any], face: Face, wants: Wants) -> None:
    handler = Registry().add("t", function)
    assert (handler.face, handler.wants) == (face, wants)
    assert (handler.decode is None) is (wants is Wants.EVENT)


async def number_first(number: int, session: AsyncSession) -> None: ...
async def mapping_first(job: dict[str, Any], session: AsyncSession) -> None: ...
async def either_first(job: Job | None, session: AsyncSession) -> None: ...
async def event_first(event: Event, job: Job, session: AsyncSession) -> None: ...
async def two_payloads(job: Job, other: Model, session: AsyncSession) -> None: ...
async def session_first(session: AsyncSession, event: Event) -> None: ...
async def two_sessions(session: AsyncSession, other: AsyncSession) -> None: ...
async def four(job: Job, event: Event, session: AsyncSession, prepared: object) -> None: ...
async def three(event: Event, session: AsyncSession, prepared: object) -> None: ...
async def five(job: Job, event: Event, other: Event, session: AsyncSession) -> None: ...
async def not_there(order: "Order", session: AsyncSession) -> None: ...
async def no_session(job: Job, event: Event) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (number_first, r"'number' is annotated with int: annotate it with Event, or with a dataclass or a pyd"),
        (mapping_first, r"'job' is annotated with dict\[str, typing\.Any\]: annotate it with Event"),
        (either_first, r"'job' is annotated with .*Job \| None: annotate it with Event"),
        (event_first, r"takes \(event: .*, job: .*\) -> None, not \(event\) or \(payload, event\) before all else"),
        (two_payloads, r"'other' is annotated with Model: after the payload comes the event, annotated with Event"),
        (session_first, r"'event' stands where the session belongs, .* write \(event, session\), \(payload, session\)"),
        (two_sessions, r"'session' is annotated with AsyncSession: annotate it with Event"),
        (four, r"not \(event, session\), \(payload, session\) or \(payload, event, session\) by position"),
        (three, r"'prepared' stands where the session belongs, .* `prepared` is the last where there is a `prepare`"),
        (five, r"by position"),
        (not_there, r"'order' is annotated with 'Order', which cannot be found while the program runs"),
        (no_session, r"'event': annotate it with AsyncSession, AsyncConnection or"),
    ],
)  # fmt: skip
def test_what_does_not_say_is_refused_with_what_to_write(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        Registry().add("t", function)
    assert f"{function.__module__}.{function.__qualname__}" in str(caught.value)


def test_a_payload_that_cannot_be_made_is_refused_with_handler_and_field() -> None:
    @dataclass
    class Bad:
        when: complex

    async def bad(job: Bad, session: AsyncSession) -> None: ...

    with pytest.raises(ConfigurationError, match=r"handler .*bad: .*Bad\.when: complex cannot be made from JSON"):
        Registry().add("t", bad)


# ---------------------------------------------------------------- prepare
async def of_event(event: Event) -> str:
    return event.id


async def of_payload(job: Job) -> int:
    return job.rows


async def of_both(job: Job, event: Event) -> str:
    return f"{event.id}:{job.rows}"


async def of_model(job: Model) -> int:
    return job.rows


async def of_number(number: int) -> None: ...
async def of_none(*, job: Job) -> None: ...
async def event_then_payload(event: Event, job: Job) -> None: ...


async def with_event(event: Event, session: AsyncSession, found: object) -> None: ...
async def with_payload(job: Job, session: AsyncSession, found: object) -> None: ...
async def with_both(job: Job, event: Event, session: AsyncSession, found: Job) -> None: ...


@pytest.mark.parametrize("prepare", [of_event, of_payload, of_both])
@pytest.mark.parametrize("function", [with_event, with_payload, with_both])
def test_prepare_and_handler_ask_each_for_themselves(function: Callable[..., Any], prepare: Any) -> None:
    handler = Registry().add("t", function, prepare)
    asks = {handler.wants, handler.prepare_wants}
    assert (handler.decode is None) is (asks == {Wants.EVENT})


@pytest.mark.parametrize(
    ("function", "prepare", "says"),
    [
        (with_event, of_number, r"prepare: its parameter 'number' is annotated with int"),
        (with_event, of_none, r"prepare: takes \(\*, job: .*, not \(event\), \(payload\) or \(payload, event\)"),
        (with_event, event_then_payload, r"prepare: takes .*, not \(event\) or \(payload, event\) before"),
        (with_payload, of_model, "takes the payload as Job and its prepare as Model: one class for both"),
        (both, of_payload, r"'event' stands where the session belongs"),
    ],
)  # fmt: skip
def test_a_prepare_that_does_not_fit_is_refused(function: Callable[..., Any], prepare: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Registry().add("t", function, prepare)


# ---------------------------------------------------------------- the engine
def arrival(identifier: str = "1", body: bytes = b'{"rows": 5}', *, pristine: bool = True) -> Any:
    return delivery(identifier, body, pristine=pristine)


def write(session: Any, *effect: object) -> None:
    session.write(effect)


async def test_each_way_of_asking_gets_what_it_asked_for() -> None:
    engine = Engine()
    seen: list[tuple[object, ...]] = []

    @engine.inbox.handler("payload")
    async def one(job: Job, session: AsyncSession) -> None:
        seen.append((job,))

    @engine.inbox.handler("both")
    async def two(job: Job, event: Event, session: AsyncSession) -> None:
        seen.append((job, event.id))

    @engine.inbox.handler("model")
    async def three(job: Model, session: AsyncConnection) -> None:
        seen.append((job,))

    @engine.inbox.handler("sync")
    def four(job: Job, event: Event, session: Session) -> None:
        seen.append((job, event.id))

    @engine.inbox.handler("prepared", prepare=of_both)
    async def five(job: Job, session: AsyncSession, found: str) -> None:
        seen.append((job, found))

    @engine.inbox.handler("all", prepare=of_payload)
    async def six(job: Job, event: Event, session: AsyncSession, found: int) -> None:
        seen.append((job, event.id, found))

    @engine.inbox.handler("for prepare", prepare=of_payload)
    async def seven(event: Event, session: AsyncSession, found: int) -> None:
        seen.append((event.id, found))

    class Jobs(InboxService):
        @handles("method", prepare=of_payload)
        async def note(self, job: Job, event: Event, session: AsyncSession, found: int) -> None:
            seen.append((self, job, event.id, found))

    jobs = Jobs()
    engine.inbox.add_service(jobs)
    kinds = ("payload", "both", "model", "sync", "prepared", "all", "for prepare", "method")
    for kind in kinds:
        await replace_engine(engine, kind)
    job = Job(5)
    assert seen == [
        (job,), (job, "both"), (Model(rows=5),), (job, "sync"), (job, "prepared:5"), (job, "all", 5),
        ("for prepare", 5), (jobs, job, "method", 5),
    ]  # fmt: skip


async def replace_engine(engine: Engine, kind: str) -> None:
    """Settle one delivery of `kind`; an Inbox runs once, so that each has one of its own."""
    fresh = Engine()
    fresh.inbox.registry = engine.inbox.registry
    await fresh.settle(delivery(kind, b'{"rows": 5}', kind=kind))
    assert not fresh.reasons


@pytest.mark.parametrize(
    ("body", "reason", "detail"),
    [
        (b'{"rows": "5"}', "invalid-payload", "data.rows: expected an integer, got a text"),
        (b"", "invalid-payload", "data: expected a JSON object, got an event without data"),
        (b"[]", "invalid-payload", "data: expected an object, got a list"),
        (b"{", "bad-json", "the data is not strict JSON"),
    ],
)
async def test_a_payload_that_does_not_fit_is_quarantined_before_anything_is_begun(
    body: bytes, reason: str, detail: str
) -> None:
    engine = Engine()
    engine.inbox.handler("t", prepare=of_payload)(with_payload)
    await engine.settle(arrival(body=body), arrival(body=body, pristine=False))
    assert [(row.reason, row.detail) for row in engine.store.quarantined] == [(reason, detail)]
    assert set(engine.probe.commands) <= {"decode", "verify", "quarantine", "acknowledge"}
    assert not engine.store.rows
    assert not engine.store.attempts
    assert not engine.store.open_starts
    assert engine.inbox.telemetry.counts["quarantined"] == 2


async def test_authenticity_is_decided_before_the_payload_is_looked_at() -> None:
    class Forger:
        async def verify(self, arrival: object, event: CloudEvent) -> None:
            raise Unauthentic("no")

    engine = Engine(verifier=Forger())
    engine.inbox.handler("t")(payload_only)
    await engine.settle(arrival(body=b"[]"))
    assert engine.reasons == ["unauthentic"]


async def test_an_event_that_was_refused_is_applied_once_its_model_is_mended() -> None:
    engine, mended = Engine(), Engine()
    engine.inbox.handler("t")(payload_only)
    await engine.settle(arrival(body=b'{"rows": "5"}'))
    assert engine.reasons == ["invalid-payload"]

    @dataclass
    class Lenient:
        rows: int | str

    @mended.inbox.handler("t")
    async def credit(job: Lenient, session: AsyncSession) -> None:
        write(session, job.rows)

    await mended.settle(arrival(body=b'{"rows": "5"}'))
    assert mended.store.effects == [("5",)]


async def test_a_run_does_not_see_what_one_before_it_made_of_the_payload() -> None:
    @dataclass
    class Changeable:
        rows: int

    engine = Engine(replace(FAST, retry=RetryPolicy(delays=(0.001,), first_delay=0.001, max_delay=0.002, immediate=3)))
    seen: list[int] = []

    @engine.inbox.handler("t", prepare=of_event)
    async def credit(job: Changeable, session: AsyncSession, found: str) -> None:
        seen.append(job.rows)
        job.rows += 1
        if len(seen) < 3:
            raise Contended("dead-lock", code=1213)
        write(session, job.rows)

    await engine.settle(arrival())
    assert seen == [5, 5, 5]
    assert engine.store.effects == [(6,)]


async def test_deliveries_do_not_see_each_others_payloads() -> None:
    engine = Engine()

    @engine.inbox.handler("t")
    async def credit(job: Job, event: Event, session: AsyncSession) -> None:
        write(session, event.id, job.rows)

    numbers = range(40)
    await engine.settle(*(arrival(str(number), f'{{"rows": {number}}}'.encode()) for number in numbers))
    assert sorted(engine.store.effects, key=str) == sorted(((str(number), number) for number in numbers), key=str)


async def test_what_breaks_while_it_decodes_is_run_again_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect, or no memory left: it says nothing about the event."""
    engine = Engine()

    @engine.inbox.handler("t")
    async def credit(job: Job, session: AsyncSession) -> None:
        write(session, job.rows)

    breaks, for_event = [MemoryError()], Handler.for_event

    def once(handler: Handler, event: Event) -> Handler:
        if breaks:
            raise breaks.pop()
        return for_event(handler, event)

    monkeypatch.setattr(Handler, "for_event", once)
    await engine.settle(arrival())
    assert engine.store.effects == [(5,)]


def test_a_handler_shows_no_payload() -> None:
    handler = Registry().add("t", payload_only)
    given = replace(handler, payload=Job(12345))
    assert "12345" not in repr(given)
    assert given == handler
    assert hash(given) == hash(handler)


# ---------------------------------------------------------------- in words of the type checker
def test_the_type_checker_takes_what_the_registry_takes() -> None:
    """Each line that is to be an error says so: the type checker complains of an `ignore` that it does not need."""
    inbox = Engine().inbox
    inbox.handler("1")(payload_only)
    inbox.handler("2")(both)
    inbox.handler("3")(model_only)
    inbox.handler("4")(plain)
    inbox.handler("5", prepare=of_payload)(with_payload)
    inbox.handler("6", prepare=of_both)(with_both)
    for wrong in (
        lambda: inbox.handler("7")(event_first),  # type: ignore[type-var]
        lambda: inbox.handler("7")(four),  # type: ignore[type-var]
        lambda: inbox.handler("7")(three),  # type: ignore[type-var]
        lambda: inbox.handler("7", prepare=of_payload)(both),  # type: ignore[type-var]
        lambda: inbox.handler("7", prepare=of_none)(with_payload),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError):
            wrong()
    assert {handler.event_type for handler in inbox.registry} == {"1", "2", "3", "4", "5", "6"}
