"""What a database URL must be, checked before anything connects."""

from __future__ import annotations

from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from inbox.adapters.mysql.drivers import driver_class
from inbox.errors import ConfigurationError

_DRIVERS: Final = ("aiomysql", "asyncmy")
_EXAMPLE: Final = "mysql://user:password@host:3306/database"
#: Anything else would reach the driver's connect(): local files, commands at connect, flags, plain-text fall-backs.
_QUERY: Final = frozenset({"charset", "unix_socket"})


def checked_url(given: str | URL) -> URL:
    """The URL with its driver written out and no parameter that could get round the guard.

    Args:
        given: `mysql://` or `mariadb://`, with `+aiomysql` (the default) or `+asyncmy`.

    Raises:
        ConfigurationError: it cannot be used. The message names the fix, and never the password.
    """
    try:
        url = make_url(given)
        backend, driver = url.get_backend_name(), url.drivername.partition("+")[2] or _DRIVERS[0]
    except (ArgumentError, ValueError, AttributeError):
        # Without the cause: SQLAlchemy's message quotes the URL, password and all.
        raise ConfigurationError(f"the database URL cannot be read: write it as {_EXAMPLE}") from None
    if backend not in ("mysql", "mariadb"):
        raise ConfigurationError(f"the database URL is for {backend}: write it as {_EXAMPLE}")
    _check_driver(backend, driver)
    if not url.database:
        raise ConfigurationError(f"the database URL names no database: write it as {_EXAMPLE}")
    _check_query(url)
    return url.set(drivername=f"{backend}+{driver}").update_query_dict({"charset": "utf8mb4"})


def _check_driver(backend: str, driver: str) -> None:
    if driver not in _DRIVERS:
        raise ConfigurationError(
            f"the database URL asks for the driver {driver!r}, which the guard does not know: "
            f"use {backend}+aiomysql:// or {backend}+asyncmy://"
        )
    try:
        driver_class(driver)
    except ImportError:
        raise ConfigurationError(
            f"the driver {driver} is not installed: pip install 'idempotent-inbox[{driver}]', or use {backend}+aiomysql://"
        ) from None


def _check_query(url: URL) -> None:
    unknown = sorted(set(url.query) - _QUERY)
    if unknown:
        raise ConfigurationError(
            f"the database URL has parameters that cannot be taken: {', '.join(unknown)}. Time-outs and TLS are set "
            "with DatabaseSettings(connect_timeout=…, tls=True, tls_ca=…)"
        )
    if url.query.get("charset", "utf8mb4") != "utf8mb4":
        raise ConfigurationError("the database URL asks for another charset than utf8mb4, which the guard reads")
