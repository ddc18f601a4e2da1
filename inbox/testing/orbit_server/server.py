"""The server: one port for the management API and the connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

from inbox.adapters.websocket.codec import LONGEST_FRAME, SUBPROTOCOL
from inbox.core.facts import fact
from inbox.errors import ConfigurationError, StartupError
from inbox.testing.orbit_server.management import Management, bearer_of, refusing
from inbox.testing.orbit_server.provider import Provider
from inbox.testing.orbit_server.session import Room, Session
from inbox.testing.orbit_server.settings import OrbitServerSettings
from inbox.testing.orbit_server.store import Store
from inbox.testing.orbit_server.switches import Act, Switchboard
from inbox.testing.orbit_server.wire import Cut, cut

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["OrbitServer"]

_log = logging.getLogger(__name__)

#: Where connections are opened.
_PATH: Final = "/v1/events"
#: Octets of a request's body: a snapshot of a frame's length, and more.
_MOST_BODY: Final = 1024 * 1024
#: Seconds that a peer has to answer a close frame, and a request to end when the server stops.
_PATIENCE: Final = 1.0


class OrbitServer:
    """A reference server of the subscription protocol: everything that a client has to cope with, on request.

    ```python
    async with OrbitServer() as server:
        operator = server.provider.authenticate(server.credential)
        subscription = server.provider.subscribe(operator, "reports")
        server.switches.set(Switch(Act.LOSE_REPLY, "ack"))
        server.provider.publish("reports", b'{"task_id": …, "status": "succeeded"}')
    ```

    It runs on the event loop that enters it, and nothing of it may be called from another thread.

    Args:
        settings: how it behaves.
        clock: seconds since 1970.
        new_credential: whether to replace the operator's bearer where the file has one.

    Attributes:
        credential: the operator's bearer; empty where the file had one already, for it is told once only.
        provider: behind it.
        switches: what it is to do wrong.
    """

    def __init__(
        self,
        settings: OrbitServerSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
        new_credential: bool = False,
    ) -> None:
        self._settings = settings or OrbitServerSettings()
        self._clock = clock
        self._new_credential = new_credential
        self._store: Store | None = None
        self._runner: web.AppRunner | None = None
        self._room: Room | None = None
        self._port = 0
        self.credential = ""
        self.switches = Switchboard()

    def __repr__(self) -> str:
        return f"<OrbitServer {self._settings.host}:{self._port}>"

    @property
    def provider(self) -> Provider:
        """What it knows and does. Only while it serves."""
        assert self._room is not None, "it does not serve"  # noqa: S101 - a test's own mistake
        return self._room.provider

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"{'ws' if self._settings.tls is None else 'wss'}://{self._place}{_PATH}"

    @property
    def management_url(self) -> str:
        """What the paths of the management API follow on."""
        return f"{'http' if self._settings.tls is None else 'https'}://{self._place}"

    @property
    def _place(self) -> str:
        host = self._settings.host
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    @property
    def connections(self) -> int:
        """How many there are, registered or not."""
        return 0 if self._room is None else len(self._room.sessions)

    @property
    def sessions(self) -> frozenset[str]:
        """Their sessions, by which the deliveries that they hold name them."""
        return frozenset() if self._room is None else frozenset(session.id for session in self._room.sessions)

    def cut_connections(self, how: Cut = Cut.RESET) -> None:
        """End them all at once."""
        if self._room is not None:
            for session in [*self._room.sessions]:
                session.cut(how)

    async def __aenter__(self) -> Self:
        """Serve.

        Raises:
            ConfigurationError: the file cannot be used.
            StartupError: the port cannot be had.
        """
        self._store = Store(self._settings.file)
        try:
            provider = Provider(self._settings, self._store, self._clock)
            self._room = Room(provider, self.switches, self._settings)
            await self._listen()
            self.credential = provider.operator_bearer(anew=self._new_credential) or ""
        except BaseException:
            await self.close()
            raise
        told = fact("orbit-serving", url=self.url, is_kept=self._settings.file is not None)
        _log.info("serving %s", self.url, extra=told)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Say good-bye to every connection and stop. Leases stay as they are. May be called twice."""
        self.switches.clear()
        if self._room is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * _PATIENCE):
                    await asyncio.gather(*(session.close() for session in self._room.sessions), return_exceptions=True)
        self.cut_connections()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    async def _listen(self) -> None:
        assert self._room is not None  # noqa: S101 - just made
        app = web.Application(middlewares=[refusing], client_max_size=_MOST_BODY)
        app.add_routes([web.get(_PATH, self._connect), *Management(self._room).routes()])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_PATIENCE)
        await self._runner.setup()
        settings = self._settings
        try:
            await web.TCPSite(self._runner, settings.host, settings.port, ssl_context=settings.tls).start()
        except OSError as error:
            why = "another program uses it" if error.errno == errno.EADDRINUSE else type(error).__name__
            raise StartupError(f"cannot listen on {settings.host} port {settings.port}: {why}") from error
        self._port = self._runner.addresses[0][1]

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        """The upgrade: who it is, and whether it speaks the protocol."""
        assert self._room is not None  # noqa: S101 - it serves
        transport = request.transport
        switch = self.switches.at("upgrade")
        if switch is not None and switch.act is Act.ANSWER_HTTP:
            return web.json_response({"code": "SWITCH", "message": "a switch says so"}, status=switch.status)
        if switch is not None and switch.act is Act.HOLD:
            await self.switches.wait_released(switch)
        if transport is None or (switch is not None and switch.act is Act.CUT):
            if transport is not None and switch is not None:
                cut(transport, switch.how)
            return web.Response(status=503)
        credential = self._room.provider.authenticate(bearer_of(request))
        socket = web.WebSocketResponse(
            timeout=_PATIENCE, protocols=(SUBPROTOCOL,), compress=False, max_msg_size=LONGEST_FRAME + 1
        )
        if socket.can_prepare(request).protocol != SUBPROTOCOL:
            raise ConfigurationError(f"connect by WebSocket, with the sub-protocol {SUBPROTOCOL}")
        await socket.prepare(request)
        await Session(self._room, credential, socket, transport).run()
        return socket
