"""A leased subscription in the laboratory: a platform of its own, on which nobody waits for a lease to end."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inbox.adapters.websocket.delivery import source_of
from inbox.core.lifecycle import Command
from inbox.errors import ConfigurationError, TransportError
from inbox.testing.lab.results import result_of
from inbox.testing.lab.stand_in import StandIn
from inbox.testing.orbit_server import OrbitServer, OrbitServerSettings, Terms
from inbox.testing.orbit_server.rules import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from inbox.adapters.websocket import OrbitTransport
    from inbox.testing.lab.events import Message
    from inbox.testing.orbit_server.provider import Provider

__all__ = ["OrbitQueue"]

_QUEUE: Final = "lab"
#: Hand-outs that may come to nothing, until an event is EXPIRED: what the platform gives where nobody says otherwise.
_BUDGET: Final = 5
_WINDOW: Final = 10_000
#: Leases are as long as the platform's. A worker that a busy machine keeps from its heartbeats is not cut off.
_SETTINGS: Final = OrbitServerSettings(
    terms=Terms(lease=30.0, first_delay=0.001, longest_delay=0.001), budget=_BUDGET, handshake=60.0, idle=600.0
)
#: Seconds between two looks at what workers have noted, where nothing else happens.
_PAUSE: Final = 0.02


class OrbitQueue:
    """See `Queue`. Its platform runs in the lab's own thread and in memory; `purge` takes another one.

    What takes time at a real platform is brought about at once, and costs an event nothing of its budget unless its
    handler came to nothing:

    - the leases of a connection that is gone end: its worker is dead, or has stopped;
    - the lease of an event whose handler came to nothing ends, for the worker has noted it;
    - an event that is published again under its id is handed out again when it has been acknowledged, as if that had
      never come: there are no copies, and while a unit runs its lease does too.

    Args:
        transport: the target's, of which the address and the credential are not used.
    """

    def __init__(self, transport: OrbitTransport) -> None:
        # It has the address and the credential beside it, which are not looked at.
        self._subscription = transport._registration.subscription_id  # noqa: SLF001 - see above
        self._server: OrbitServer | None = None
        self._folder: Path | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._forget()

    def _forget(self) -> None:
        self._published: dict[str, Message] = {}
        #: Hand-outs to come besides the first, by the event.
        self._owed: Counter[str] = Counter()
        self._read = 0

    @property
    def name(self) -> str:
        """See `Queue.name`: the source of its events."""
        return source_of(self._subscription)

    @property
    def is_quick(self) -> bool:
        """See `Queue.is_quick`: the leases of a broken connection end."""
        return True

    @property
    def never(self) -> frozenset[Command]:
        """See `Queue.never`: a platform that leases keeps no copies for later."""
        return frozenset({Command.DELAY})

    @property
    def stand_in(self) -> StandIn | None:
        """See `Queue.stand_in`: the lab's platform."""
        return StandIn(self._running.url, self._running.credential, str(self._released))

    def fit(self, message: Message) -> Message:
        """See `Queue.fit`: as a result of a task."""
        return result_of(message, self._subscription)

    # ------------------------------------------------------------ life
    async def open(self, *, disposable: bool) -> None:
        """See `Queue.open`: what is in a real subscription is not looked at."""
        self._folder = Path(tempfile.mkdtemp(prefix="inbox-lab-"))
        await self._start()

    async def close(self) -> None:
        """See `Queue.close`."""
        await self._stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def purge(self) -> None:
        """See `Queue.purge`: another platform, whose numbers and clock begin anew."""
        await self._stop()
        await self._start()

    async def _start(self) -> None:
        self._forget()
        self._released.write_bytes(b"")
        self._server = await OrbitServer(_SETTINGS).__aenter__()
        provider = self._server.provider
        operator = provider.authenticate(self._server.credential)
        provider.subscribe(operator, _QUEUE, window=_WINDOW, subscription_id=self._subscription)
        self._news = asyncio.Event()
        provider.watch(lambda _: self._news.set())
        self._keeping = asyncio.create_task(self._keep(), name="inbox lab leases")

    async def _stop(self) -> None:
        keeping, self._keeping = self._keeping, None
        server, self._server = self._server, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait({keeping})
        if server is not None:
            await server.close()

    @property
    def _released(self) -> Path:
        if self._folder is None:
            raise TransportError("the lab is not open")
        return self._folder / "released"

    @property
    def _running(self) -> OrbitServer:
        if self._server is None:
            raise TransportError("the lab is not open")
        return self._server

    @property
    def _provider(self) -> Provider:
        return self._running.provider

    # ------------------------------------------------------------ events
    async def publish(self, messages: Iterable[Message]) -> None:
        """See `Queue.publish`: what was published before is owed another hand-out.

        Raises:
            ConfigurationError: what was published before was another event.
        """
        for message in messages:
            event = message.event
            assert event is not None  # noqa: S101 - it was made to fit
            known = self._published.get(event.id)
            if known is None:
                self._provider.publish(
                    _QUEUE, message.body, event_type=event.type, occurred_at=event.time_text, event_id=event.id
                )
                self._published[event.id] = message
            elif known != message:
                raise ConfigurationError(f"event {event.id}: the platform draws an id once; give this one another id")
            else:
                self._owed[event.id] += 1
                self._news.set()

    async def ready(self) -> int:
        """See `Queue.ready`: what is due, in hand or owed. EXPIRED events are none of these."""
        keeping = self._keeping
        if keeping is not None and keeping.done():
            keeping.result()  # a defect of ours must not look like a handler's
        counts = self._provider.counts(self._subscription)
        return counts[State.DUE] + counts[State.LEASED] + self._owed.total()

    async def given_up(self) -> frozenset[str]:
        """See `Queue.given_up`: those that have used up their budget."""
        if self._server is None:
            return frozenset()
        return frozenset(row.event_id for row in self._provider.events(self._subscription, State.EXPIRED))

    async def bury(self) -> None:
        """See `Queue.bury`: their connections are gone."""

    # ------------------------------------------------------------ what would take time
    async def _keep(self) -> None:
        while True:
            self._news.clear()
            self._look_after()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._news.wait()

    def _look_after(self) -> None:
        for event_id in self._newly_released():
            if self._state_of(event_id) is State.LEASED:
                self._provider.end_lease(self._subscription, event_id)
        here = self._running.sessions
        for row in self._provider.events(self._subscription, State.LEASED):
            if row.holder not in here:
                self._provider.end_lease(self._subscription, row.event_id, more=1)
        for event_id in [*self._owed]:
            if self._hand_out_again(event_id):
                self._owed -= Counter([event_id])

    def _newly_released(self) -> Iterator[str]:
        """Ids that workers have noted since the last time; each line is written at once."""
        with self._released.open("rb") as file:
            file.seek(self._read)
            for line in file.read().splitlines():
                self._read += len(line) + 1
                yield line.decode()

    def _hand_out_again(self, event_id: str) -> bool:
        """Let it be due once more; False while it is due or in hand."""
        state = self._state_of(event_id)
        if state is State.ACKNOWLEDGED:
            self._provider.reopen(self._subscription, event_id)
        elif state is State.EXPIRED:
            self._provider.add_budget(self._subscription, event_id, 1)
        return state in (State.ACKNOWLEDGED, State.EXPIRED)

    def _state_of(self, event_id: str) -> State:
        return self._provider.event(self._subscription, event_id).standing.state
