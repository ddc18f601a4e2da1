"""A worker over leases in the lab: it goes to the platform that stands in, or nowhere."""

import asyncio
import sys
from pathlib import Path

import pytest

from inbox import ConfigurationError, Inbox, RabbitMQ
from inbox.adapters.websocket import Credential, OrbitSettings, OrbitTransport, TaskEvent, delivery_from
from inbox.adapters.websocket.conversation import Limits
from inbox.adapters.websocket.transport import _Receipt
from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.core.lifecycle import Command
from inbox.testing.lab.matrix import unreached
from inbox.testing.lab.places import queue_of
from inbox.testing.lab.stand_in import StandIn, is_leased, point_at
from inbox.testing.memory import MemoryStore

SUBSCRIPTION = "5" * 32
SETTINGS = OrbitSettings(capacity=7, unit_deadline=3.0, quarantine="rejected", tls_ca="theirs.pem")
LIMITS = Limits(heartbeat=1.0)


class Theirs(OrbitTransport):
    """One that extends ours."""


def leased(kind: type[OrbitTransport] = OrbitTransport) -> Inbox:
    transport = kind("wss://real.example/v1/events", SUBSCRIPTION, Credential("real"), SETTINGS, limits=LIMITS)
    return Inbox("shop", store=MemoryStore(), transport=transport)


def over_a_broker() -> Inbox:
    return Inbox("shop", store=MemoryStore(), transport=RabbitMQ("amqp://nowhere/", "shop"))


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn("ws://127.0.0.1:1/v1/events", "ours", str(tmp_path / "released"))


@pytest.mark.parametrize("kind", [OrbitTransport, Theirs])
def test_only_the_address_and_the_credential_are_replaced(kind: type[OrbitTransport], stand_in: StandIn) -> None:
    inbox = leased(kind)
    transport = inbox.transport
    assert is_leased(transport)
    point_at(inbox, stand_in)
    assert inbox.transport is transport
    registration = transport._registration
    assert (registration.url, registration.credential.reveal()) == ("ws://127.0.0.1:1/v1/events", "ours")
    assert (registration.subscription_id, registration.capacity) == (SUBSCRIPTION, 7)
    assert (transport.settings, transport._limits) == (SETTINGS, LIMITS)
    assert "real" not in str({**transport.describe(), "registration": registration})


def test_a_target_that_takes_another_transport_in_a_worker_is_not_started(stand_in: StandIn) -> None:
    for inbox, given in ((leased(), None), (over_a_broker(), stand_in)):
        with pytest.raises(ConfigurationError, match="takes another transport in a worker"):
            point_at(inbox, given)
    point_at(over_a_broker(), None)
    assert not is_leased(None)


def test_what_is_released_is_noted_once_it_is(stand_in: StandIn) -> None:
    inbox = leased()
    point_at(inbox, stand_in)
    transport, noted = inbox.transport, Path(stand_in.released)
    assert is_leased(transport)
    event = TaskEvent("1" * 32, "task.failed", SUBSCRIPTION, 1, "2030-01-02T03:04:05.678Z", b"{}", "7" * 32, "failed")
    with pytest.raises(TypeError, match="did not come over a leased subscription"):
        asyncio.run(transport.release(delivery_from(event)))
    assert noted.read_text() == "", "what was not let go of is not noted"
    asyncio.run(transport.release(delivery_from(event, receipt=_Receipt(event.id))))
    assert noted.read_text() == f"{event.id}\n"


def test_nobody_is_killed_where_copies_would_be_kept() -> None:
    queue = queue_of(leased(), ())
    assert queue.name == f"orbit:subscription/{SUBSCRIPTION}"
    points = {str(point) for point in unreached((), queue.never)}
    assert {*map(str, crash_points())} - points == {"before:delay", "after:delay"}
    assert CrashPoint.parse("after:delay").command in queue.never
    assert queue_of(over_a_broker(), ()).never == frozenset() != {Command.DELAY}


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("inbox.testing.orbit_server", "inbox.testing.lab."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    from inbox.testing.lab.places import queue_of as without  # noqa: PLC0415 - as it would be loaded without it

    with pytest.raises(ConfigurationError, match=r"needs aiohttp: pip install 'idempotent-inbox\[orbit-server\]'"):
        without(leased(), ())
