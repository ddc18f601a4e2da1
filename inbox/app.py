"""`Inbox`: a consumer's name, where its rows and its deliveries are, and its handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from inbox.config import ConsumerSettings, check_consumer_name, require
from inbox.core import cloudevents
from inbox.core.quarantine import ReplayReport, Selection
from inbox.runtime.consumer import Consumer
from inbox.runtime.registry import Registry
from inbox.runtime.replay import Replay
from inbox.runtime.telemetry import Telemetry
from inbox.runtime.transaction import transaction
from inbox.runtime.verification import verified

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self, TypeVar

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

    from inbox.core.delivery import Delivery
    from inbox.core.event import Event
    from inbox.core.handler import Prepare
    from inbox.ports import Probe, Store, StoreFactory, Transport, Verifier
    from inbox.service import InboxService

    #: What `@inbox.handler` takes, in words of a type checker; `Registry.add` says the same while the program runs,
    #: and asks besides that what stands first is the event or a class for its payload.
    F = TypeVar(
        "F",
        bound=Callable[[Any, AsyncSession], Awaitable[object]]
        | Callable[[Any, AsyncConnection], Awaitable[object]]
        | Callable[[Any, Session], object]
        | Callable[[Any, Event, AsyncSession], Awaitable[object]]
        | Callable[[Any, Event, AsyncConnection], Awaitable[object]]
        | Callable[[Any, Event, Session], object],
    )
    #: The same, with what `prepare` returned.
    P = TypeVar(
        "P",
        bound=Callable[[Any, AsyncSession, Any], Awaitable[object]]
        | Callable[[Any, AsyncConnection, Any], Awaitable[object]]
        | Callable[[Any, Session, Any], object]
        | Callable[[Any, Event, AsyncSession, Any], Awaitable[object]]
        | Callable[[Any, Event, AsyncConnection, Any], Awaitable[object]]
        | Callable[[Any, Event, Session, Any], object],
    )
    #: What `@inbox.batch_handler` takes.
    B = TypeVar(
        "B",
        bound=Callable[[list[Event], AsyncSession], Awaitable[object]]
        | Callable[[list[Event], AsyncConnection], Awaitable[object]]
        | Callable[[list[Event], Session], object],
    )


class Inbox:
    """One consumer with exactly-once database effects.

        inbox = Inbox("billing", store=MySQL(database_url), transport=RabbitMQ(amqp_url, queue="billing"))

        @inbox.handler("job.completed")
        async def credit(event: Event, session: AsyncSession) -> None: ...

    Args:
        name: the name duplicates are known under; it is part of every key. Two consumers with one
            name share their effects, two names have one effect each.
        store: the database.
        transport: where deliveries come from; None where only `transaction` is used.
        settings: how it works.
        verifier: decides whether a delivery is authentic; None trusts the transport.
        probes: observers of every step.

    Raises:
        ConfigurationError: a setting is malformed.
    """

    def __init__(
        self,
        name: str,
        *,
        store: StoreFactory,
        transport: Transport | None = None,
        settings: ConsumerSettings | None = None,
        verifier: Verifier | None = None,
        probes: Sequence[Probe] = (),
    ) -> None:
        require(not isinstance(store, str), "the store is a text: write store=MySQL(url)")
        require(not isinstance(transport, str), "the transport is a text: write transport=RabbitMQ(url, queue)")
        self.name = check_consumer_name(name)
        self.settings = settings or ConsumerSettings()
        if transport is not None and transport.lease_terms is not None:
            self.settings = self.settings.over_lease(transport.lease_terms)
        self.telemetry = Telemetry()
        self.registry = Registry(self.settings.unknown_types)
        self._verifier = verifier
        self._transport = transport
        self._probes: list[Probe] = [self.telemetry, *probes]
        self._stores = store
        self._store = self._make_store()
        self._consumer: Consumer | None = None
        self._replays: set[Replay] = set()
        self._is_stopping = False
        self._is_entered = False

    # ------------------------------------------------------------ handlers
    @overload
    def handler(self, *event_types: str, prepare: None = None) -> Callable[[F], F]: ...
    @overload
    def handler(self, *event_types: str, prepare: Prepare) -> Callable[[P], P]: ...
    def handler(self, *event_types: str, prepare: Prepare | None = None) -> Callable[[Any], Any]:
        """Register the decorated function as the handler of `event_types`.

        Its annotations say what it wants: first the event (`Event`), the event's data as a dataclass or a pydantic
        model, or that and then the event; after it the unit (`AsyncSession`, `AsyncConnection`, or `Session` for a
        plain `def`); at last what `prepare` returned, where there is one.

            @inbox.handler("job.completed")
            async def credit(job: JobCompleted, event: Event, session: AsyncSession) -> None: ...

        Data that does not fit is quarantined as `invalid-payload` with the field that did not, before anything is begun
        and at no attempt's cost. What is taken for what: `inbox.runtime.converters` for dataclasses, where `jobId` fits
        `job_id` too; `inbox.runtime.models` for pydantic. A handler that is run again, as after a dead-lock, gets
        an object of its own each time.

        Args:
            event_types: CloudEvents types, at least one; several where a producer renamed one.
            prepare: `async (event)`, `async (payload)` or `async (payload, event)` run before the transaction, for
                reads over the network; what it returns is the handler's last argument.

        Raises:
            ConfigurationError: no type is given, it has a handler already, the signature names no session, or the
                payload's class holds what cannot be made from JSON.
        """
        require(bool(event_types), "@inbox.handler needs the event type: @inbox.handler('job.completed')")
        for given in event_types:
            require(
                isinstance(given, str),
                f"@inbox.handler needs the event type: @inbox.handler('job.completed'), not a {type(given).__name__}",
            )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for event_type in event_types:
                self.registry.add(event_type, function, prepare)
            return function

        return register

    def batch_handler(self, *event_types: str) -> Callable[[B], B]:
        """Register the decorated function as the handler of all events of a batch that have one of `event_types`.

            @inbox.batch_handler("job.completed")
            async def credit(events: list[Event], session: AsyncSession) -> None: ...

        It gets them in the order of their arrival, no event twice, and applies all of them or raises: then the batch is
        undone, and each event comes again in a list of its own, so that only the one that fails is charged. Without
        `ConsumerSettings.batch`, in `replay`, and for what is in trouble, all lists have one event.

        Args:
            event_types: CloudEvents types, at least one.

        Raises:
            ConfigurationError: no type is given, it has a handler already, or the signature is not `(events, session)`
                with `list[Event]` and a face of the unit.
        """
        require(
            bool(event_types) and all(isinstance(given, str) for given in event_types),
            "@inbox.batch_handler needs the event type: @inbox.batch_handler('job.completed')",
        )

        def register(function: B) -> B:
            for event_type in event_types:
                self.registry.add_batch(event_type, function)
            return function

        return register

    def add_service(self, service: InboxService) -> None:
        """Register every method of `service` that is marked with `@handles`.

        Raises:
            ConfigurationError: there is none, or one cannot be registered.
        """
        require(
            not isinstance(service, type), f"add_service takes an object, such as {_name(service)}(), not the class"
        )
        found = list(service.inbox_handlers())
        require(bool(found), f"{type(service).__name__} has no method marked with @handles")
        for event_type, method, prepare in found:
            self.registry.add(event_type, method, prepare)

    def add_probe(self, probe: Probe) -> None:
        """Add an observer. Before `run`."""
        self._probes.append(probe)

    @property
    def store(self) -> Store:
        """The database's side, for commands that look after it. Whoever opens it closes it."""
        return self._store

    @property
    def transport(self) -> Transport | None:
        """Where deliveries come from; None where only `transaction` is used."""
        return self._transport

    def describe(self) -> dict[str, str]:
        """What is about to run, for people; without secrets."""
        transport = {} if self._transport is None else self._transport.describe()
        return {
            "consumer": self.name,
            **self._store.describe(),
            **transport,
            "handlers": ", ".join(sorted(f"{handler.event_type} → {handler.name}" for handler in self.registry)),
            "concurrency": str(self.settings.concurrency),
            "prefetch": str(self.settings.effective_prefetch),
        }

    # ------------------------------------------------------------ the worker
    async def run(self, *, started: Callable[[], None] | None = None) -> None:
        """Consume until `stop`. Runs once.

        Args:
            started: called when both sides are checked and consuming begins.

        Raises:
            StartupError: with one message that names the fix; nothing was consumed.
            TransportError, StoreError: a peer cannot be reached, or the patience with it ended.
            StopTimeout: a handler did not come back within the shutdown's patience.
        """
        consumer = self._make_consumer()
        if self._is_stopping or not await consumer.open():
            return
        await consumer.run(started)

    def stop(self) -> None:
        """Take nothing new, finish what is running, then let `run` and `replay` return.

        May be called twice, and before them.
        """
        self._is_stopping = True
        if self._consumer is not None:
            self._consumer.stop()
        for replay in self._replays:
            replay.stop()

    @property
    def stop_patience(self) -> float:
        """Seconds that `run` may take to end after `stop`.

        A transport over leases has its time-out for all of that; the settings have one for handlers.
        """
        terms = None if self._transport is None else self._transport.lease_terms
        patience = self.settings.shutdown_patience
        return max(patience, 0 if terms is None else terms.shutdown_timeout) + self.settings.cancel_patience

    @property
    def running_handlers(self) -> list[str]:
        """Names of the handlers that run, also of those that were given up after their deadline."""
        names = [] if self._consumer is None else self._consumer.running_handlers
        return [*names, *(name for replay in self._replays for name in replay.running_handlers)]

    async def replay(
        self,
        selection: Selection | None = None,
        *,
        limit: int | None = None,
        progress: Callable[[ReplayReport], None] | None = None,
    ) -> ReplayReport:
        """Send open entries of the quarantine through the whole pipeline again, verification included.

        Idempotent: what was applied already, here or by a late redelivery, is a duplicate. Each runs once, and goes
        back where it fails. Killed half-way, it has done what it has; do it again. Workers, and other replays, may be
        at work meanwhile. `stop` ends it early.

        Args:
            selection: which entries; their state is always `open`. None takes all.
            limit: most entries; None takes all.
            progress: told what has become of them so far, every now and then and at the end. Must not raise.

        Returns:
            What has become of each.

        Raises:
            StartupError: with one message that names the fix; nothing was replayed.
            StoreError: the database cannot be reached, or the patience with it ended.
            StopTimeout: a handler did not come back within the shutdown's patience.
        """
        self._require_handlers()
        replay = Replay(
            self.name,
            store=self._make_store(),
            registry=self.registry,
            verifier=self._verifier,
            settings=self.settings,
            probes=self._probes,
            selection=selection or Selection(),
            limit=limit,
            progress=progress,
        )
        self._replays.add(replay)
        if self._is_stopping:
            replay.stop()
        try:
            return await replay.run()
        finally:
            self._replays.discard(replay)

    def _make_store(self) -> Store:
        return self._stores.for_consumer(
            self.name, concurrency=self.settings.concurrency, deadline=self.settings.deadline
        )

    def _require_handlers(self) -> None:
        require(len(self.registry) > 0, "the Inbox has no handlers: @inbox.handler('type'), or inbox.add_service(...)")
        self.registry.check()

    def _require_batches(self) -> None:
        """Refuse batches where they would break a promise."""
        if self.settings.batch is None:
            return
        why = self._store.why_no_batches
        require(why is None, f"ConsumerSettings.batch cannot be used: {why}")
        require(
            self._transport is None or self._transport.lease_terms is None,
            "ConsumerSettings.batch cannot be used over leases: an event that waits for its neighbours uses up its own",
        )

    def _make_consumer(self) -> Consumer:
        require(self._consumer is None, "an Inbox runs once; make another one")
        require(self._transport is not None, "the Inbox has no transport: Inbox(..., transport=RabbitMQ(...))")
        self._require_handlers()
        self._require_batches()
        assert self._transport is not None  # noqa: S101 - required above; for the type checker
        self._consumer = Consumer(
            self.name,
            store=self._store,
            transport=self._transport,
            registry=self.registry,
            verifier=self._verifier,
            settings=self.settings,
            probes=self._probes,
            counts=self.telemetry.counts,
        )
        return self._consumer

    # ------------------------------------------------------------ for your own consumer
    async def __aenter__(self) -> Self:
        """Open the store for `transaction`.

        Raises:
            StartupError: with one message that names the fix.
        """
        try:
            await self._store.open()
        except BaseException:
            await self._store.close()
            raise
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        await self._store.close()

    async def verify(self, delivery: Delivery) -> Event:
        """Decode `delivery` and decide whether it is authentic.

        Raises:
            Refused: it holds no readable CloudEvent, is not authentic, or cannot be stored.
        """
        if delivery.refusal is not None:
            raise delivery.refusal
        return await verified(delivery, cloudevents.decode(delivery), self.name, self._verifier, self.settings)

    def transaction(self, event: Event) -> AbstractAsyncContextManager[AsyncSession]:
        """Claim `event` and run the block in the same transaction; see `inbox.runtime.transaction`.

            with suppress(AlreadyProcessed):
                async with inbox.transaction(event) as session: ...
            await message.ack()

        Acknowledge only after a normal exit or `AlreadyProcessed`.

        Raises:
            AlreadyProcessed, IdentityConflict, TryAgain, NotApplied, CommitUnresolved, UnitMisused.
            ConfigurationError: the Inbox is not open, so nothing has checked guard and tables; or the event was
                verified by another one.
        """
        require(
            self._is_entered or self._consumer is not None,
            "the Inbox is not open: use `async with inbox:` around everything that calls inbox.transaction",
        )
        require(
            event.record.consumer == self.name,
            f"the event was verified by the Inbox of {event.record.consumer!r}, not by this one: "
            "its identity and fingerprint are that one's",
        )
        return transaction(self._store, event, self.settings.deadline)


def _name(given: object) -> str:
    return getattr(given, "__name__", type(given).__name__)
