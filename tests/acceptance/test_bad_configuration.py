"""A bad configuration stops the worker at its start, with one line that names the fix, exit code 2 and no secret."""

import signal
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import aio_pika
import pytest
from sqlalchemy import make_url

from tests.acceptance.command import Ended, run, running
from tests.acceptance.tables import create_tables
from tests.crash.app import connect
from tests.facts import wait_until
from tests.pairs import Driver, Pair
from tests.services.local import free_port

APPS = "tests.acceptance.apps"
#: Nothing listens there, and nothing is asked of it: what is wrong shows before anything connects.
NOWHERE = {
    "APP_DATABASE_URL": "mysql://app:open-sesame@127.0.0.1:1/app",
    "APP_AMQP_URL": "amqp://app:open-sesame@127.0.0.1:1/",
    "APP_QUEUE": "app",
}
SECRETS = ("open-sesame", ":inbox@", ":guest@")


async def refused(target: str, env: Mapping[str, str], *words: str) -> str:
    """The one line in which `inbox run` says why it does not start."""
    ended = await run("run", target, "--quiet", *words, env=env)
    assert_one_line(ended)
    return ended.err


def assert_one_line(ended: Ended) -> None:
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert ended.err.count("\n") == 1, ended.err
    assert "not started: " in ended.err
    assert not [secret for secret in SECRETS if secret in ended.err]


# ------------------------------------------------------------------ what shows without a server
@pytest.mark.parametrize(
    ("target", "fix"),
    [
        ("nowhere.at.all:inbox", "run from your project's root"),
        (f"{APPS}.nowhere:inbox", "run from your project's root"),
        (".apps:inbox", "write module:attribute"),
        (f"{APPS}:nothing_here", "has no 'nothing_here'"),
        (f"{APPS}:settings", "is a ConsumerSettings, not an Inbox"),
        (f"{APPS}:needs", "must take no arguments"),
        (f"{APPS}:two_handlers", "two handlers for type 'thing.happened'"),
        (f"{APPS}:no_handlers", "@inbox.handler('type')"),
        (f"{APPS}:no_transport", "Inbox(..., transport=RabbitMQ(...))"),
        (f"{APPS}:handler_of_no_face", "annotate it with AsyncSession, AsyncConnection"),
    ],
)
async def test_a_wrong_target_or_inbox(target: str, fix: str) -> None:
    assert fix in await refused(target, NOWHERE)


async def test_a_missing_variable() -> None:
    env = {name: value for name, value in NOWHERE.items() if name != "APP_AMQP_URL"}
    assert "set APP_AMQP_URL in the environment" in await refused(f"{APPS}:plain", env)
    assert "set BILLING_DATABASE_URL in the environment" in await refused("examples.billing.app:inbox", {})


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        ({"APP_DATABASE_URL": "open-sesame"}, "write it as mysql://"),
        ({"APP_DATABASE_URL": "mysql://app:open-sesame@db"}, "names no database"),
        ({"APP_DATABASE_URL": "mysql://app:open-sesame@db/app?ssl_ca=x"}, "DatabaseSettings("),
        ({"APP_AMQP_URL": "http://app:open-sesame@broker"}, "amqp://"),
    ],
)
async def test_a_malformed_address(wrong: dict[str, str], fix: str) -> None:
    assert fix in await refused(f"{APPS}:plain", NOWHERE | wrong)


async def test_a_module_of_theirs_that_cannot_be_imported_shows_its_traceback() -> None:
    """It is their defect, not a setting: where it is raised is what they need."""
    ended = await run("run", "tests.acceptance.broken:inbox", env=NOWHERE)
    assert ended.code == 1
    assert "No module named 'no_such_library'" in ended.err


# ------------------------------------------------------------------ what a server shows
@dataclass
class App:
    pair: Pair
    queue: str

    @property
    def env(self) -> dict[str, str]:
        return {
            "APP_DATABASE_URL": self.pair.database_url,
            "APP_AMQP_URL": self.pair.amqp_url,
            "APP_QUEUE": self.queue,
        }

    def database(self, **parts: object) -> dict[str, str]:
        url = make_url(self.pair.database_url).set(**parts)  # type: ignore[arg-type] # the parts are its own
        return self.env | {"APP_DATABASE_URL": url.render_as_string(hide_password=False)}

    def broker(
        self, *, user: str = "guest", password: str | None = None, port: int | None = None, vhost: str = ""
    ) -> dict[str, str]:
        old = make_url(self.pair.amqp_url)
        url = old.set(
            username=user if password else old.username,
            password=password or old.password,
            port=port or old.port,
            database=vhost,
        )
        return self.env | {"APP_AMQP_URL": url.render_as_string(hide_password=False)}

    def execute(self, statement: str) -> None:
        with closing(connect(self.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    async def declare(self, arguments: dict[str, object], *, durable: bool = True) -> None:
        async with await aio_pika.connect(self.pair.amqp_url) as connection:
            channel = await connection.channel()
            await channel.declare_queue(self.queue, durable=durable, arguments=arguments)  # type: ignore[arg-type] # as AMQP has them


@pytest.fixture
async def app(pair: Pair) -> App:
    queue = pair.unique("app")
    pair.discard(f"{queue}.dead")
    await create_tables(pair)
    return App(pair, queue)


async def test_it_starts_when_nothing_is_wrong(app: App) -> None:
    """Or every refusal below would prove nothing."""
    async with running("run", f"{APPS}:plain", env=app.env) as worker:
        await worker.wait_for("consuming")
        assert (await worker.stop()).code == 0


async def test_there_is_no_database(app: App) -> None:
    line = await refused(f"{APPS}:plain", app.database(port=free_port()))
    assert "check host and port in the URL" in line


async def test_the_host_of_the_database_does_not_exist(app: App) -> None:
    line = await refused(f"{APPS}:plain", app.database(host="no-such-host.invalid"))
    assert "no-such-host.invalid" in line
    assert "check host and port in the URL" in line


async def test_the_password_of_the_database_is_wrong(app: App) -> None:
    assert "check user, password" in await refused(f"{APPS}:plain", app.database(password="open-sesame"))


async def test_there_is_no_such_schema(app: App) -> None:
    assert "check user, password, host and database" in await refused(f"{APPS}:plain", app.database(database="no_such"))


async def test_several_workers_say_it_once(app: App) -> None:
    line = await refused(f"{APPS}:plain", app.database(password="open-sesame"), "--workers", "3")
    assert "check user, password" in line


@pytest.mark.parametrize(
    ("damage", "problem", "fix"),
    [
        ("DROP TABLE inbox", "inbox", "inbox schema apply"),
        ("DROP TABLE inbox_attempt", "inbox_attempt", "inbox schema apply"),
        ("ALTER TABLE inbox ENGINE=MyISAM", "MyISAM", "InnoDB"),
        (
            "ALTER TABLE inbox MODIFY event_id VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL",
            "event_id",
            "VARBINARY(512)",
        ),
        ("ALTER TABLE inbox MODIFY event_id VARBINARY(64) NOT NULL", "event_id", "VARBINARY(512)"),
    ],
    ids=["missing", "attempts-missing", "myisam", "collation", "too-short"],
)
async def test_the_tables_would_break_the_promise(app: App, damage: str, problem: str, fix: str) -> None:
    app.execute(damage)
    line = await refused(f"{APPS}:plain", app.env)
    assert problem.lower() in line.lower()
    assert fix.lower() in line.lower()


async def test_tls_is_asked_of_the_database_and_not_given(app: App, driver: Driver) -> None:
    """MariaDB 10.11 comes without TLS; MySQL 9 comes with a certificate of its own making, which nobody vouches for."""
    env = app.database(drivername=f"mysql+{driver}")
    line = await refused(f"{APPS}:database_tls", env)
    assert "TLS" in line
    assert ("DatabaseSettings(tls_ca=…)" if app.pair.is_mysql else "enable TLS there") in line


async def test_the_authority_of_the_database_is_no_file(app: App) -> None:
    line = await refused(f"{APPS}:database_tls_of_an_authority", app.env | {"APP_CA": "no-such-file.pem"})
    assert "name a PEM file" in line


async def test_there_is_no_broker(app: App) -> None:
    line = await refused(f"{APPS}:plain", app.broker(port=free_port()))
    assert "check host and port" in line


async def test_the_password_of_the_broker_is_wrong(app: App) -> None:
    assert "check user and password" in await refused(f"{APPS}:plain", app.broker(password="open-sesame"))


async def test_there_is_no_such_virtual_host(app: App) -> None:
    assert "virtual host" in await refused(f"{APPS}:plain", app.broker(vhost="no-such"))


async def test_a_plain_port_is_asked_for_tls(app: App) -> None:
    env = app.env | {"APP_AMQP_URL": app.pair.amqp_url.replace("amqp://", "amqps://")}
    assert "TLS listener" in await refused(f"{APPS}:plain", env)
    assert "TLS listener" in await refused(f"{APPS}:broker_tls", app.env)


async def test_the_queue_has_other_arguments(app: App) -> None:
    await app.declare({"x-queue-type": "classic", "x-max-length": 10})
    line = await refused(f"{APPS}:plain", app.env)
    assert f"queue '{app.queue}' exists with other properties" in line
    assert "RabbitMQSettings(declare=False)" in line


@pytest.mark.parametrize(
    ("arguments", "durable", "fix"),
    [
        ({"x-queue-type": "quorum", "x-delivery-limit": 5}, True, "give it one"),
        ({"x-queue-type": "classic", "x-message-ttl": 60_000}, True, "give it one"),
        ({}, False, "declare it durable"),
    ],
    ids=["delivery-limit", "ttl", "not-durable"],
)
async def test_the_queue_would_drop_events(app: App, arguments: dict[str, object], durable: bool, fix: str) -> None:
    await app.declare(arguments, durable=durable)
    assert fix in await refused(f"{APPS}:takes_the_queue_as_it_is", app.env)


async def test_the_queue_that_is_taken_as_it_is_does_not_exist(app: App) -> None:
    assert "RabbitMQSettings(declare=True)" in await refused(f"{APPS}:takes_the_queue_as_it_is", app.env)


async def test_the_table_of_the_start_stands_above_the_one_line(app: App) -> None:
    ended = await run("run", f"{APPS}:plain", env=app.broker(password="open-sesame"))
    assert ended.code == 2
    *table, last = ended.err.splitlines()
    assert "not started: " in last
    assert [row.split()[0] for row in table][:2] == ["consumer", "database"]
    assert "open-sesame" not in ended.err


async def test_a_worker_that_waits_for_its_broker_can_be_stopped(app: App) -> None:
    async with running("run", f"{APPS}:waits_for_the_broker", env=app.broker(port=free_port())) as worker:
        await worker.wait_for("consumer ")
        await wait_for_signals(worker.pid)
        ended = await worker.stop(signal.SIGTERM)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err


async def wait_for_signals(pid: int) -> None:
    """Return when the process handles SIGTERM itself."""
    await wait_until(lambda: bool(caught_signals(pid) >> (signal.SIGTERM - 1) & 1))


def caught_signals(pid: int) -> int:
    """A bit for each, as proc(5) has them."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
