"""What is wrong with the configuration stops a store at its start, with one message that names the fix."""

import socket

import pytest

from inbox.adapters.mysql import MySQL
from inbox.adapters.mysql.engine import make_engine, prove_guard
from inbox.config import DatabaseSettings
from inbox.errors import ConfigurationError, Contended, SchemaError, StartupError, StoreUnavailable, TlsError
from inbox.tables import TableNames
from inbox.testing.faults import Direction, Fault, FaultProxy, MySqlFraming
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    rig = MySQLRig(pair, driver)
    await rig.create()
    return rig


async def why_not(url: str, settings: DatabaseSettings | None = None, tables: TableNames | None = None) -> StartupError:
    """The error that opening a store ends in."""
    database = MySQL(url, settings or DatabaseSettings(connect_timeout=3.0), tables or TableNames())
    store = database.for_consumer("billing", concurrency=1, deadline=5.0)
    with pytest.raises(StartupError) as caught:
        await store.open()
    await store.close()
    assert "\n" not in str(caught.value)
    assert "s3cret" not in repr(caught.value) + repr(store) + repr(database) + str(store.describe())
    return caught.value


async def test_no_such_port(rig: MySQLRig) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = await why_not(rig.through(port))
    assert isinstance(error, ConfigurationError)
    assert f"127.0.0.1:{port}" in str(error)


async def test_no_such_host(driver: Driver) -> None:
    error = await why_not(f"mysql+{driver}://inbox:s3cret@no-such-host.invalid/inbox")
    assert isinstance(error, ConfigurationError)
    assert "no-such-host.invalid" in str(error)


async def test_wrong_password(rig: MySQLRig) -> None:
    error = await why_not(rig.pair.url_for(rig.driver, password="s3cret"))
    assert isinstance(error, ConfigurationError)
    assert "password" in str(error)


async def test_unknown_database(rig: MySQLRig) -> None:
    error = await why_not(rig.url + "_none")
    assert isinstance(error, ConfigurationError)
    assert "database" in str(error)


async def test_tls_asked_for_and_not_given_or_not_trusted(rig: MySQLRig) -> None:
    """MySQL made a certificate for itself, that nobody trusts; MariaDB has none."""
    error = await why_not(rig.url, DatabaseSettings(tls=True, connect_timeout=3.0))
    assert isinstance(error, TlsError)
    assert ("tls_ca" if rig.pair.is_mysql else "does not offer it") in str(error)


async def test_missing_table(rig: MySQLRig) -> None:
    await rig.sql("DROP TABLE inbox_quarantine")
    error = await why_not(rig.url)
    assert isinstance(error, SchemaError)
    assert "inbox_quarantine" in str(error)


async def test_other_table_names_are_asked_for(rig: MySQLRig) -> None:
    assert "my_inbox" in str(await why_not(rig.url, tables=TableNames(inbox="my_inbox")))


async def test_a_table_without_transactions(rig: MySQLRig) -> None:
    await rig.sql("ALTER TABLE inbox ROW_FORMAT=DEFAULT ENGINE=MyISAM")
    error = await why_not(rig.url)
    assert isinstance(error, SchemaError)
    assert "InnoDB" in str(error)


async def test_a_key_that_merges_ids(rig: MySQLRig) -> None:
    await rig.sql("ALTER TABLE inbox MODIFY event_id VARCHAR(512) CHARACTER SET utf8mb4 NOT NULL")
    error = await why_not(rig.url)
    assert isinstance(error, SchemaError)
    assert "event_id" in str(error)


@pytest.mark.parametrize("url", ["", "postgresql://u:s3cret@h/d", "mysql+pymysql://u:s3cret@h/d", "not a url"])
def test_a_url_that_cannot_be_used(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MySQL(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 129, "é" * 65])
def test_a_consumer_name_that_cannot_be_stored(name: str) -> None:
    with pytest.raises(ConfigurationError):
        MySQL("mysql://u@h/d").for_consumer(name, concurrency=1, deadline=1.0)


@pytest.mark.parametrize("number", range(1, 5))
async def test_a_connection_that_is_lost_while_the_guard_is_proved_says_nothing_of_the_guard(
    rig: MySQLRig, number: int
) -> None:
    """Of the proof's own packets behind those of its log-in; each lost answer was taken for a driver that is blind."""
    async with FaultProxy(rig.pair.database.host, rig.pair.database.port, MySqlFraming) as proxy:
        engine = make_engine(rig.through(proxy.port), DatabaseSettings(connect_timeout=3.0), deadline=5.0)
        await prove_guard(engine)
        before = proxy.traffic.copy()
        await prove_guard(engine)
        spent = proxy.traffic - before
        broken = proxy.break_at(Direction.TO_SERVER, spent.packets - number + 1, Fault.CUT_BEFORE)
        with pytest.raises((Contended, StoreUnavailable)):
            await prove_guard(engine)
        assert broken.reached.is_set()
        await engine.dispose()
