"""Asking a server who it is: the test of readiness, and of its version."""

import re
import socket
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

import pamqp.commands
import pamqp.frame
import pymysql

from tests.services.catalog import Version
from tests.services.service import Service, ServiceError

PROBE_TIMEOUT: Final = 5.0
START_PATIENCE: Final = 120.0


def connect_database(
    dsn: str, *, database: str | None = None, read_timeout: float = 60
) -> "pymysql.connections.Connection[pymysql.cursors.Cursor]":
    """A plain blocking connection in autocommit, for making and dropping databases."""
    parts = urlsplit(dsn)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=database,
        autocommit=True,
        connect_timeout=int(PROBE_TIMEOUT),
        read_timeout=read_timeout,
        ssl_disabled=True,  # or each connection reads every authority that this machine trusts, which takes 25 ms
    )


def probe(service: Service) -> Version:
    """The version that the server reports. Raises OSError or the driver's error while it does not serve."""
    if service.offer.is_database:
        product, version = _probe_database(service.dsn)
    else:
        product, version = _probe_broker(service.host, service.port)
    if product != service.offer.product or version < service.offer.at_least:
        found = f"{product} {'.'.join(map(str, version))}"
        raise ServiceError(
            f"{service.name}: the tests need {service.offer}, but {service.host}:{service.port} is {found}"
        )
    return version


def wait_until_it_serves(service: Service, last_lines: Callable[[], str]) -> None:
    """Returns when the server has said its version, which is then noted; gives up at once when it has died."""
    deadline = time.monotonic() + START_PATIENCE
    while True:
        try:
            service.version = probe(service)
        except (OSError, pymysql.MySQLError) as error:
            if not service.is_running() or time.monotonic() > deadline:
                raise ServiceError(f"{service.name} did not start ({error}):\n{last_lines()}") from error
            time.sleep(0.1)
        else:
            return


def _probe_database(dsn: str) -> tuple[str, Version]:
    with connect_database(dsn, read_timeout=PROBE_TIMEOUT) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        row = cursor.fetchone()
    text = str(row[0]) if row else ""
    return ("MariaDB" if "mariadb" in text.lower() else "MySQL"), parse_version(text)


def _probe_broker(host: str, port: int) -> tuple[str, Version]:
    """The first frame a broker sends names product and version before anyone has logged in."""
    with socket.create_connection((host, port), PROBE_TIMEOUT) as connection:
        connection.settimeout(PROBE_TIMEOUT)
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        received = b""
        while True:
            more = connection.recv(4096)
            if not more:
                raise ConnectionResetError("the broker closed the connection before it said who it is")
            received += more
            frame = _read_start(received)
            if frame is not None:
                break
    properties = frame.server_properties or {}
    return str(properties.get("product")), parse_version(str(properties.get("version")))


def _read_start(received: bytes) -> pamqp.commands.Connection.Start | None:
    size = int.from_bytes(received[3:7], "big") + 8 if len(received) >= 7 else len(received) + 1
    if len(received) < size:
        return None
    frame = pamqp.frame.unmarshal(received[:size])[2]
    if not isinstance(frame, pamqp.commands.Connection.Start):
        raise ServiceError("this is no AMQP 0-9-1 broker")
    return frame


def parse_version(text: str) -> Version:
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise ServiceError(f"no version in {text!r}")
    return tuple(int(part) for part in found.groups() if part is not None)
