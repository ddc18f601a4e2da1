"""asyncmy's connection, guarded. Imported only where it is asked for: the driver is an extra."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncmy.connection
from asyncmy.constants import CLIENT
from asyncmy.protocol import MysqlPacket

from inbox.adapters.mysql.drivers import GuardedConnection
from inbox.errors import TlsError

# Its stubs leave out the private names that the guard stands on.
_Connection: Any = asyncmy.connection.Connection


class AsyncmyConnection(GuardedConnection, _Connection):  # type: ignore[misc]
    """See `GuardedConnection`."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """See `transport` of `drivers`. Older releases have a stream, newer ones a protocol."""
        writer = getattr(self, "_writer", None)
        transport: asyncio.Transport | None = writer.transport if writer else getattr(self, "_transport", None)
        return transport

    @property
    def has_ended(self) -> bool:
        """See `has_ended` of `drivers`."""
        reader, protocol = getattr(self, "_reader", None), getattr(self, "_proto", None)
        return bool(reader.at_eof() if reader else protocol is None or protocol.eof)

    async def open(self) -> None:
        """See `open` of `drivers`."""
        await self.connect()

    async def connect(self) -> Any:
        """As the driver's, but a connection that runs units is never made anew."""
        self.guard.admit_reconnect()
        return await super().connect()

    async def _request_authentication(self) -> Any:
        if self._ssl_context and not self.server_capabilities & CLIENT.SSL:
            raise TlsError("TLS was asked for and the server does not offer it: enable TLS there, or set tls=False")
        return await super()._request_authentication()

    async def read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        """As the driver's, and the guard hears of errors."""
        self._reading += 1
        try:
            return await super().read_packet(packet_type)
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            self._reading -= 1

    _next_packet = read_packet
