"""aiomysql's connection, guarded."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomysql
from aiomysql.connection import MysqlPacket
from pymysql.constants import CLIENT

from inbox.adapters.mysql.drivers import GuardedConnection
from inbox.errors import TlsError


class AiomysqlConnection(GuardedConnection, aiomysql.Connection):  # type: ignore[misc]  # it ships no types
    """See `GuardedConnection`."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """See `transport` of `drivers`."""
        return self._writer.transport if self._writer is not None else None

    @property
    def has_ended(self) -> bool:
        """See `has_ended` of `drivers`."""
        return self._reader is None or self._reader.eof_received

    async def open(self) -> None:
        """See `open` of `drivers`."""
        await self._connect()

    async def _connect(self) -> None:
        self.guard.admit_reconnect()
        await super()._connect()

    async def _request_authentication(self) -> None:
        # aiomysql would go on in plain text, and send the password.
        if self._ssl_context and not self.server_capabilities & CLIENT.SSL:
            raise TlsError("TLS was asked for and the server does not offer it: enable TLS there, or set tls=False")
        await super()._request_authentication()

    async def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        self._reading += 1
        try:
            return await super()._read_packet(packet_type)
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            self._reading -= 1

    _next_packet = _read_packet
