"""`inbox crash-test` where nothing can be run: one line that says why, and exit code 2."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inbox import ConsumerSettings, Event, Inbox, MySQL, RabbitMQ
from inbox.adapters.websocket import Credential, OrbitTransport
from inbox.cli.main import app
from inbox.core.lease import LeaseTerms
from inbox.testing.memory import MemoryBroker, MemoryStore, MemoryTransport


async def enter(event: Event, session: object) -> None: ...


def shop() -> Inbox:
    return Inbox("shop", store=MySQL("mysql://nowhere/shop"), transport=RabbitMQ("amqp://nowhere/", "shop"))


def without_transport() -> Inbox:
    return Inbox("shop", store=MySQL("mysql://nowhere/shop_test"))


def over_leases() -> Inbox:
    transport = OrbitTransport("wss://platform.example/v1/events", "0" * 32, Credential("nobodys"))
    return Inbox("shop", store=MySQL("mysql://nowhere/shop_test"), transport=transport)


def over_another_lease() -> Inbox:
    transport = MemoryTransport(MemoryBroker(lease_terms=LeaseTerms(25, 30)))
    return Inbox("shop", store=MySQL("mysql://nowhere/shop_test"), transport=transport)


def in_memory() -> Inbox:
    return Inbox("shop", store=MemoryStore(), settings=ConsumerSettings())


HERE = __name__
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "paid"}


@pytest.mark.parametrize(
    ("target", "words", "said"),
    [
        ("shop.nowhere:inbox", [], "no module 'shop.nowhere'"),
        (f"{HERE}:enter", [], "must take no arguments and return an Inbox"),
        (f"{HERE}:shop", ["--points", "before:lunch"], "the points are before:decode"),
        (f"{HERE}:shop", ["--workers", "0"], "write numbers from 1 to 16"),
        (f"{HERE}:shop", ["--workers", "one"], "write numbers from 1 to 16"),
        (f"{HERE}:shop", ["--ignore", "invoice"], "write table.column"),
        (f"{HERE}:shop", [], "the database 'shop' is not known to be for tests"),
        (f"{HERE}:without_transport", [], "the target has no transport"),
        (f"{HERE}:over_leases", [], "line 1: id: the platform's ids are 32 small hexadecimal digits"),
        (f"{HERE}:over_leases", ["--points", "after:commit,after:delay"], "after:delay is no point over orbit:subscri"),
        (f"{HERE}:over_another_lease", [], "the lab works with RabbitMQ(…), SQLiteQueue(…) and OrbitTransport(…), not"),
        (f"{HERE}:in_memory", [], "the lab works with MySQL"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_line(target: str, words: list[str], said: str, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps(EVENT))
    refused = CliRunner().invoke(app, ["crash-test", target, "--events", str(events), *words])
    assert refused.exit_code == 2, refused.output
    assert said in refused.output.replace("\n", " ")


def test_a_file_without_events_is_told_of(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": 1}')
    refused = CliRunner().invoke(app, ["crash-test", f"{HERE}:shop", "--events", str(events), "--disposable"])
    assert (refused.exit_code, "line 1: this is no CloudEvent" in refused.output) == (2, True)
