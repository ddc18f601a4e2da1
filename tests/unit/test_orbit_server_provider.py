"""The provider behind the reference server, by a clock of the test's: credentials, window, budgets, proofs, files."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from inbox.adapters.websocket.codec import ErrorCode
from inbox.errors import ConfigurationError
from inbox.testing.orbit_server import OrbitServerSettings, Terms
from inbox.testing.orbit_server.provider import Granted, Provider
from inbox.testing.orbit_server.refusal import Conflict, Refusal
from inbox.testing.orbit_server.rules import LAST_GENERATION, State
from inbox.testing.orbit_server.store import CredentialRow, Store, SubscriptionRow

TASK = "7" * 32
BIG = b'{ "task_id": "' + TASK.encode() + b'", "status":"succeeded", "n": 9007199254740993, "f": 1.10, "f": 1e400 }'


def snapshot(status: str = "succeeded", **more: object) -> bytes:
    return json.dumps({"task_id": TASK, "status": status, **more}).encode()


class World:
    """A provider and its operator."""

    stores: ClassVar[list[Store]] = []

    def __init__(self, settings: OrbitServerSettings | None = None, file: Path | None = None) -> None:
        self.time = 1_700_000_000.0
        self.store = Store(file)
        self.provider = Provider(settings or OrbitServerSettings(), self.store, lambda: self.time)
        self.stores.append(self.store)
        self.bearer = self.provider.operator_bearer()

    @property
    def operator(self) -> CredentialRow:
        assert self.bearer is not None
        return self.provider.authenticate(self.bearer)

    def subscribe(self, queue: str = "reports", **more: Any) -> SubscriptionRow:
        return self.provider.subscribe(self.operator, queue, **more)

    def publish(self, count: int = 1) -> list[str]:
        return [self.provider.publish("reports", snapshot(n=n))[0].event_id for n in range(count)]

    def claim(self, subscription: SubscriptionRow, capacity: int = 4, holder: str = "h") -> tuple[Granted, ...]:
        return self.provider.claim(subscription.id, holder, capacity).granted

    def ack(self, subscription: SubscriptionRow, granted: Granted) -> None:
        generation = granted.delivery.standing.generation
        self.provider.acknowledge(subscription.id, granted.id, generation, granted.secret.reveal())


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while World.stores:
        World.stores.pop().close()


@pytest.fixture
def world() -> World:
    return World()


def code_of(refused: pytest.ExceptionInfo[Refusal]) -> str:
    return refused.value.code.value


# ---------------------------------------------------------------- credentials
def test_a_bearer_is_told_once_and_kept_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "orbit.db"
    first = World(file=file)
    assert first.bearer is not None
    others = first.provider.add_credential("mail", ("reports",))
    first.store.close()
    for bearer in (first.bearer, others):
        assert not [path for path in tmp_path.iterdir() if bearer.encode() in path.read_bytes()]
    again = World(file=file)
    assert again.bearer is None
    assert again.provider.authenticate(others).name == "mail"
    replaced = again.provider.operator_bearer(anew=True)
    assert replaced is not None
    assert again.provider.authenticate(replaced).is_operator
    with pytest.raises(Refusal, match="UNAUTHENTICATED"):
        again.provider.authenticate(first.bearer)


def test_a_subscription_is_bound_to_its_maker_and_its_queue(world: World) -> None:
    mail = world.provider.authenticate(world.provider.add_credential("mail", ("reports",)))
    other = world.provider.authenticate(world.provider.add_credential("other", ("*",)))
    made = world.provider.subscribe(mail, "reports")
    assert world.provider.consumable(mail, made.id) == made
    for credential in (other, world.operator):
        with pytest.raises(Refusal) as refused:
            world.provider.consumable(credential, made.id)
        assert code_of(refused) == "FORBIDDEN"
    assert world.provider.subscription(world.operator, made.id) == made
    with pytest.raises(Refusal, match="FORBIDDEN"):
        world.provider.subscription(other, made.id)
    with pytest.raises(Refusal, match="FORBIDDEN"):
        world.provider.subscribe(mail, "invoices")
    world.provider.rescope("mail", ("invoices",))
    with pytest.raises(Refusal, match="FORBIDDEN"):
        world.provider.consumable(mail, made.id)
    world.provider.revoke("mail")
    with pytest.raises(Refusal, match="UNAUTHENTICATED"):
        world.provider.consumable(mail, made.id)
    with pytest.raises(Refusal, match="NOT_FOUND"):
        world.provider.consumable(other, "0" * 32)


def test_names_and_scopes_are_checked(world: World) -> None:
    world.provider.add_credential("mail", ("*",))
    with pytest.raises(Conflict):
        world.provider.add_credential("mail", ("*",))
    for name, queues in (("Mail", ("*",)), ("", ("*",)), ("a", ()), ("a", ("b c",)), ("a" * 65, ("*",))):
        with pytest.raises(Refusal, match="PROTOCOL"):
            world.provider.add_credential(name, queues)
    with pytest.raises(Refusal, match="NOT_FOUND"):
        world.provider.revoke("nobody")
    with pytest.raises(Refusal, match="NOT_FOUND"):
        world.provider.rescope("nobody", ("*",))


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 0},
        {"budget": 1_000_001},
        {"window": 0},
        {"window": 10_001},
        {"first_sequence": 0},
        {"first_sequence": LAST_GENERATION + 1},
        {"first_generation": 0},
    ],
)
def test_a_subscription_keeps_to_its_ranges(world: World, wrong: dict[str, int]) -> None:
    with pytest.raises(Refusal, match="PROTOCOL"):
        world.subscribe("reports", **wrong)


# ---------------------------------------------------------------- events
def test_each_subscription_of_a_queue_gets_an_event_of_its_own(world: World) -> None:
    one, two, _ = world.subscribe(), world.subscribe(), world.subscribe("invoices")
    published = world.provider.publish("reports", snapshot())
    assert {each.subscription_id for each in published} == {one.id, two.id}
    assert len({each.event_id for each in published}) == 2
    assert world.provider.publish("nobody-listens", snapshot()) == []


def test_a_snapshot_goes_out_octet_for_octet(world: World) -> None:
    subscription = world.subscribe(first_sequence=LAST_GENERATION, first_generation=LAST_GENERATION)
    given = BIG.replace(b', "f": 1e400', b"")
    world.provider.publish("reports", b"\n " + given + b"\r\n")
    (granted,) = world.claim(subscription)
    frame = granted.frame("0" * 32)
    assert frame.event.snapshot == given
    assert (frame.event.sequence, frame.delivery.generation) == (LAST_GENERATION, LAST_GENERATION)
    assert granted.secret.reveal() not in repr(granted)
    with pytest.raises(Refusal, match="no further sequence number"):
        world.provider.publish("reports", snapshot())


@pytest.mark.parametrize(
    ("body", "event_type"),
    [
        (b"", "task.succeeded"),
        (b"[]", "task.succeeded"),
        (b"{}", "task.succeeded"),
        (BIG, "task.succeeded"),  # a name is there twice
        (b"\xff", "task.succeeded"),
        (snapshot("running"), "task.succeeded"),
        (snapshot(), "task.failed"),
        (snapshot(), "task.exploded"),
        (snapshot(n="x" * 512 * 1024), "task.succeeded"),
        (snapshot().replace(TASK.encode(), b"A" * 32), "task.succeeded"),
    ],
)
def test_what_could_not_be_delivered_is_not_taken(world: World, body: bytes, event_type: str) -> None:
    subscription = world.subscribe()
    with pytest.raises(Refusal) as refused:
        world.provider.publish("reports", body, event_type=event_type)
    assert code_of(refused) == "PROTOCOL"
    assert world.provider.events(subscription.id) == []


def test_a_time_that_is_none_is_not_taken(world: World) -> None:
    world.subscribe()
    with pytest.raises(Refusal, match="PROTOCOL"):
        world.provider.publish("reports", snapshot(), occurred_at="yesterday")


# ---------------------------------------------------------------- leases
def test_a_session_has_no_more_leases_than_its_capacity(world: World) -> None:
    subscription = world.subscribe()
    world.publish(5)
    assert len(world.claim(subscription, 2, "one")) == 2
    assert world.claim(subscription, 2, "one") == ()
    assert len(world.claim(subscription, 4, "two")) == 3
    world.time += 30
    again = world.claim(subscription, 2, "one")
    assert again == (), "the back-off comes first"
    world.time += 1
    assert [granted.delivery.standing.generation for granted in world.claim(subscription, 2, "one")] == [2, 2]


def test_who_has_no_room_is_told_when_to_look_again(world: World) -> None:
    subscription = world.subscribe()
    world.publish(2)
    world.claim(subscription, 1, "one")
    world.time += 10
    assert world.provider.claim(subscription.id, "one", 1).look_again_in == 20
    assert world.provider.claim(subscription.id, "two", 4).look_again_in == 20


def test_a_paused_subscription_recovers_nothing_and_takes_acknowledgements(world: World) -> None:
    subscription = world.subscribe(budget=1)
    world.publish(2)
    first, second = world.claim(subscription)
    world.provider.enable(subscription.id, is_enabled=False)
    world.time += 3600
    assert world.claim(subscription) == ()
    assert world.provider.events(subscription.id, State.EXPIRED) == []
    world.ack(subscription, first)
    world.provider.enable(subscription.id, is_enabled=True)
    assert world.claim(subscription) == ()
    (expired,) = world.provider.events(subscription.id, State.EXPIRED)
    assert expired.event_id == second.delivery.event_id


def test_a_dead_lease_stays_until_somebody_claims(world: World) -> None:
    subscription = world.subscribe(budget=1)
    world.publish()
    world.claim(subscription)
    world.time += 365 * 86_400
    (row,) = world.provider.events(subscription.id)
    assert row.standing.state is State.LEASED
    world.claim(subscription, holder="another")
    (row,) = world.provider.events(subscription.id)
    assert row.standing.state is State.EXPIRED


def test_an_expired_event_fills_the_window_until_it_gets_budget(world: World) -> None:
    subscription = world.subscribe(budget=1, window=1)
    first, second = world.publish(2)
    world.claim(subscription)
    world.time += 31
    assert world.claim(subscription) == ()
    changed = world.provider.add_budget(subscription.id, first, 1)
    assert (changed.standing.state, changed.standing.budget) == (State.DUE, 2)
    (granted,) = world.claim(subscription)
    assert (granted.delivery.event_id, granted.delivery.standing.generation) == (first, 2)
    world.ack(subscription, granted)
    (granted,) = world.claim(subscription)
    assert granted.delivery.event_id == second
    with pytest.raises(Conflict):
        world.provider.add_budget(subscription.id, first, 1)
    for more in (0, 1_000_000):
        with pytest.raises(Refusal, match="PROTOCOL"):
            world.provider.add_budget(subscription.id, second, more)
    with pytest.raises(Refusal, match="NOT_FOUND"):
        world.provider.add_budget(subscription.id, "0" * 32, 1)


def test_a_lease_may_be_ended_and_an_acknowledgement_taken_back(world: World) -> None:
    subscription = world.subscribe(budget=1)
    (event_id,) = world.publish()
    told: list[str | None] = []
    world.provider.watch(told.append)
    for take_back in (world.provider.end_lease, world.provider.reopen):
        with pytest.raises(Conflict):
            take_back(subscription.id, event_id)
        with pytest.raises(Refusal, match="NOT_FOUND"):
            take_back(subscription.id, "0" * 32)
    world.claim(subscription)
    assert world.provider.end_lease(subscription.id, event_id, more=1).standing.state is State.DUE
    (second,) = world.claim(subscription)
    world.ack(subscription, second)
    assert world.provider.reopen(subscription.id, event_id).standing.state is State.DUE
    (third,) = world.claim(subscription)
    assert (third.delivery.event_id, third.delivery.standing.generation) == (event_id, 3)
    assert world.provider.end_lease(subscription.id, event_id).standing.state is State.EXPIRED
    assert set(told) == {subscription.id}


def test_ids_may_be_given_once(world: World) -> None:
    subscription = world.subscribe(subscription_id="a" * 32)
    assert subscription.id == "a" * 32
    assert world.provider.publish("reports", snapshot(), event_id="b" * 32)[0].event_id == "b" * 32
    for given in ("a" * 32, "A" * 32, ""):
        with pytest.raises(Refusal, match="given once"):
            world.subscribe(subscription_id=given)
    for given in ("b" * 32, "b"):
        with pytest.raises(Refusal, match="given once"):
            world.provider.publish("reports", snapshot(), event_id=given)
    assert len(world.provider.events(subscription.id)) == 1
    world.subscribe()
    with pytest.raises(Refusal, match="given once"):
        world.provider.publish("reports", snapshot(), event_id="c" * 32)
    assert len(world.provider.events(subscription.id)) == 1, "all or nothing"


def test_history_that_is_trimmed_leaves_a_gap_for_good(world: World) -> None:
    subscription = world.subscribe(window=2)
    world.publish(2)
    assert world.provider.trim_history(subscription.id) == 0
    assert not world.provider.consumable(world.operator, subscription.id).has_gap
    world.publish(3)
    assert world.provider.trim_history(subscription.id) == 3
    with pytest.raises(Refusal, match="HISTORY_GAP"):
        world.provider.consumable(world.operator, subscription.id)
    assert len(world.provider.events(subscription.id)) == 2


# ---------------------------------------------------------------- proofs
@pytest.mark.parametrize("new_delivery_ids", [False, True])
def test_a_proof_is_good_until_a_newer_hand_out(new_delivery_ids: bool) -> None:
    world = World(OrbitServerSettings(new_delivery_ids=new_delivery_ids))
    subscription = world.subscribe()
    world.publish()
    (old,) = world.claim(subscription)
    world.time += 31
    (new,) = world.claim(subscription, holder="two")
    assert (old.id != new.id) is new_delivery_ids
    assert old.secret != new.secret
    with pytest.raises(Refusal) as refused:
        world.ack(subscription, old)
    assert code_of(refused) == "PROOF_LOST"
    for _ in range(3):
        world.ack(subscription, new)
    with pytest.raises(Refusal, match="PROOF_LOST"):
        world.ack(subscription, old)


def test_a_proof_outlives_its_lease_and_its_budget(world: World) -> None:
    subscription = world.subscribe(budget=1)
    world.publish(2)
    first, second = world.claim(subscription)
    world.time += 31
    world.ack(subscription, first)
    world.claim(subscription)
    assert len(world.provider.events(subscription.id, State.EXPIRED)) == 1
    world.ack(subscription, second)
    assert {row.standing.state for row in world.provider.events(subscription.id)} == {State.ACKNOWLEDGED}


def test_a_forged_proof_acknowledges_nothing(world: World) -> None:
    subscription, other = world.subscribe(), world.subscribe()
    world.publish()
    (granted,) = world.claim(subscription)
    secret = granted.secret.reveal()
    for forged, code in {
        (granted.id, 1, "A" * 43): "FORBIDDEN",
        (granted.id, 2, secret): "FORBIDDEN",
        (granted.id, LAST_GENERATION, secret): "FORBIDDEN",
        ("0" * 32, 1, secret): "NOT_FOUND",
    }.items():
        with pytest.raises(Refusal) as refused:
            world.provider.acknowledge(subscription.id, *forged)
        assert code_of(refused) == code
    with pytest.raises(Refusal, match="NOT_FOUND"):
        world.provider.acknowledge(other.id, granted.id, 1, secret)
    (row,) = world.provider.events(subscription.id)
    assert row.standing.state is State.LEASED


def test_a_replaced_proof_is_lost_and_the_event_is_due(world: World) -> None:
    subscription = world.subscribe()
    (event_id,) = world.publish()
    (granted,) = world.claim(subscription)
    world.provider.replace_proof(subscription.id, event_id)
    with pytest.raises(Refusal, match="PROOF_LOST"):
        world.ack(subscription, granted)
    (again,) = world.claim(subscription)
    assert again.delivery.standing.generation == 3
    world.ack(subscription, again)
    with pytest.raises(Conflict):
        world.provider.replace_proof(subscription.id, event_id)


# ---------------------------------------------------------------- clock, news and file
def test_the_clock_goes_ahead_only(world: World, tmp_path: Path) -> None:
    assert world.provider.turn_clock(31) == world.time + 31
    for wrong in (0, -1, float("inf"), float("nan"), 10**9):
        with pytest.raises(Refusal, match="PROTOCOL"):
            world.provider.turn_clock(wrong)
    kept = World(file=tmp_path / "orbit.db")
    kept.provider.turn_clock(7)
    kept.store.close()
    assert World(file=tmp_path / "orbit.db").provider.now() == world.time + 7


def test_news_reach_who_watches_another_one_first_each_time(world: World) -> None:
    subscription, told = world.subscribe(), list[str]()

    def watcher(name: str) -> Callable[[str | None], None]:
        return lambda _: told.append(name)

    ends = [world.provider.watch(watcher(name)) for name in "abc"]
    world.publish(3)
    assert "".join(told) == "bcacababc"
    for end in ends:
        end()
    world.publish()
    assert len(told) == 9
    assert len(world.provider.events(subscription.id)) == 4


def test_everything_but_secrets_outlives_the_process(tmp_path: Path) -> None:
    file = tmp_path / "orbit.db"
    world = World(file=file)
    subscription = world.subscribe(budget=2)
    world.publish(2)
    (granted, _) = world.claim(subscription)
    before = world.provider.events(subscription.id)
    world.store.close()  # SQLite writes its log back; a kill is tried over real processes
    again = World(file=file)
    assert again.provider.events(subscription.id) == before
    again.ack(subscription, granted)
    assert granted.secret.reveal().encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_file_has_one_server_at_a_time(tmp_path: Path) -> None:
    first = Store(tmp_path / "orbit.db")
    with pytest.raises(ConfigurationError, match="another server uses it"):
        Store(tmp_path / "orbit.db")
    first.close()
    Store(tmp_path / "orbit.db").close()


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Store(tmp_path / "text")
    with pytest.raises(ConfigurationError, match="the folder is not there"):
        Store(tmp_path / "nowhere" / "orbit.db")


def test_a_transaction_that_fails_leaves_nothing(world: World) -> None:
    subscription = world.subscribe()

    def fail() -> None:
        with world.store.transaction():
            world.store.move_sequence(subscription.id, 9)
            world.store.add_subscription(subscription)

    with pytest.raises(sqlite3.IntegrityError):
        fail()
    assert world.store.subscription(subscription.id) == subscription


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"port": 65_536}, "port"),
        ({"budget": 0}, "budget"),
        ({"window": 0}, "window"),
        ({"most_connections": 0}, "most_connections"),
        ({"handshake": 0.0}, "handshake"),
        ({"idle": float("nan")}, "idle"),
        ({"terms": Terms(lease=0)}, "terms.lease"),
        ({"terms": Terms(first_delay=2, longest_delay=1)}, "terms.longest_delay"),
    ],
)
def test_settings_are_checked_when_they_are_made(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        OrbitServerSettings(**wrong)  # type: ignore[arg-type] # wrong on purpose


def test_a_refusal_says_its_code_and_words_of_ours() -> None:
    assert str(Refusal(ErrorCode.BUSY, "too many")) == "BUSY: too many"
