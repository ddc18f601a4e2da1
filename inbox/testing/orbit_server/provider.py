"""What the provider knows and does: credentials, subscriptions, events, leases. No socket.

Each method is one transaction of the store around a decision of `rules`. Everything runs on one event loop, so that no
two of them interleave. Tests may call them; the management API and the connections are shells around them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from inbox.adapters.websocket.codec import DeliveryFrame, ErrorCode, Grant
from inbox.config import require
from inbox.core.proof import Secret, is_id
from inbox.errors import ConfigurationError
from inbox.testing.orbit_server import rules
from inbox.testing.orbit_server.refusal import Conflict, Refusal, demand
from inbox.testing.orbit_server.results import check_result, event_of
from inbox.testing.orbit_server.rules import LAST_GENERATION, NotAllowed, Standing, State, Verdict
from inbox.testing.orbit_server.settings import MOST_BUDGET, MOST_SECONDS, MOST_WINDOW, OrbitServerSettings
from inbox.testing.orbit_server.store import CredentialRow, DeliveryRow, Store, SubscriptionRow

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OPERATOR", "Granted", "Grants", "Provider", "Published", "check_queue"]

#: The credential that is made with a new file: it may do everything.
OPERATOR: Final = "operator"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Published:
    """One event that a result became: there is one for each subscription of the queue."""

    subscription_id: str
    event_id: str


@dataclass(frozen=True, slots=True, repr=False)
class Granted:
    """One hand-out, with the secret that is written nowhere else."""

    delivery: DeliveryRow
    id: str
    secret: Secret

    def frame(self, session_id: str) -> DeliveryFrame:
        """As the connection with that session is told."""
        row = self.delivery
        grant = Grant(self.id, row.event_id, row.standing.generation, self.secret)
        return DeliveryFrame(session_id, grant, event_of(row))


@dataclass(frozen=True, slots=True)
class Grants:
    """What a claim gave.

    Attributes:
        granted: hand-outs, oldest event first.
        recovered: leases that were found to have run out.
        look_again_in: seconds after which another claim would do something; None where only news can bring it.
    """

    granted: tuple[Granted, ...] = ()
    recovered: int = 0
    look_again_in: float | None = None


class Provider:
    """The platform behind the server.

    Args:
        settings: of the server.
        store: that keeps everything.
        clock: seconds since 1970, as `time.time`; `turn_clock` goes ahead of it.
    """

    def __init__(self, settings: OrbitServerSettings, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._ahead = store.ahead()
        self._watchers: list[Callable[[str | None], None]] = []

    # ------------------------------------------------------------ time and news
    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return self._clock() + self._ahead

    def turn_clock(self, seconds: float) -> float:
        """Let the server's clock go ahead, for good; nothing turns it back.

        Args:
            seconds: more than 0, to a year.

        Returns:
            The new time.

        Raises:
            Refusal: it is none of these.
        """
        demand(0 < seconds <= 366 * MOST_SECONDS, "seconds must be more than 0, and a year at most")
        self._store.turn(seconds)
        self._ahead = self._store.ahead()
        self._tell(None)
        return self.now()

    def watch(self, watcher: Callable[[str | None], None]) -> Callable[[], None]:
        """Be told where a claim may find something new: of a subscription, or of any (None).

        Returns:
            What ends it.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _tell(self, subscription_id: str | None) -> None:
        if self._watchers:  # another one is told first each time, or one connection would have everything
            self._watchers.append(self._watchers.pop(0))
        for watcher in [*self._watchers]:
            watcher(subscription_id)

    # ------------------------------------------------------------ credentials
    def operator_bearer(self, *, anew: bool = False) -> str | None:
        """Make the operator's credential where the file has none yet.

        Args:
            anew: whether to replace the bearer of one that is there.

        Returns:
            The bearer, which is shown this once; None where there is one already.
        """
        bearer = _new_bearer()
        row = CredentialRow(OPERATOR, ("*",), is_operator=True, is_revoked=False)
        with self._store.transaction():
            if self._store.add_credential(row, _digest(bearer)):
                return bearer
            if anew:
                self._store.replace_digest(OPERATOR, _digest(bearer))
                return bearer
        return None

    def add_credential(self, name: str, queues: tuple[str, ...]) -> str:
        """Make a credential.

        Args:
            name: small letters, digits, `.`, `_`, `-`; up to 64.
            queues: its scope; `*` is every queue.

        Returns:
            The bearer, which is shown this once.

        Raises:
            Refusal: PROTOCOL: the name or a queue is none.
            Conflict: the name is taken.
        """
        demand(_NAME.fullmatch(name) is not None, "name: small letters, digits, '.', '_' and '-', up to 64")
        self._demand_queues(queues)
        bearer = _new_bearer()
        row = CredentialRow(name, queues, is_operator=False, is_revoked=False)
        if not self._store.add_credential(row, _digest(bearer)):
            raise Conflict("there is a credential of that name")
        return bearer

    def revoke(self, name: str) -> None:
        """Take a credential back for good. Its connections learn of it by their next heartbeat.

        Raises:
            Refusal: there is none of that name.
        """
        self._demand_credential(name)
        self._store.change_credential(name, is_revoked=True)

    def rescope(self, name: str, queues: tuple[str, ...]) -> None:
        """Give a credential another scope. Its connections learn of it by their next heartbeat.

        Raises:
            Refusal: there is none of that name, or a queue is none.
        """
        self._demand_credential(name)
        self._demand_queues(queues)
        self._store.change_credential(name, queues=queues)

    def authenticate(self, bearer: str) -> CredentialRow:
        """Whose bearer it is.

        Raises:
            Refusal: UNAUTHENTICATED: nobody's, or that of one who lost it.
        """
        # By its digest: how long a look-up takes tells nothing about the bearer.
        found = self._store.credential_by("digest", _digest(bearer))
        if found is None or found.is_revoked:
            raise Refusal(ErrorCode.UNAUTHENTICATED, "the bearer is not known")
        return found

    def _demand_credential(self, name: str) -> CredentialRow:
        found = self._store.credential_by("name", name)
        if found is None:
            raise Refusal(ErrorCode.NOT_FOUND, "there is no credential of that name")
        return found

    def _demand_queues(self, queues: tuple[str, ...]) -> None:
        demand(bool(queues), "queues: at least one")
        for queue in queues:
            demand(queue == "*" or _NAME.fullmatch(queue) is not None, "queues: names as of credentials, or '*'")

    # ------------------------------------------------------------ subscriptions
    def subscribe(
        self,
        credential: CredentialRow,
        queue: str,
        *,
        budget: int | None = None,
        window: int | None = None,
        first_sequence: int = 1,
        first_generation: int = 1,
        subscription_id: str | None = None,
    ) -> SubscriptionRow:
        """Make a subscription, bound to the credential that makes it and to a queue.

        Args:
            credential: of who asks.
            queue: whose results it gets from now on.
            budget: hand-outs of each event; None takes the server's.
            window: open events that it may have; None takes the server's.
            first_sequence: number of its first event; tests begin near 2⁶⁴.
            first_generation: of each event's first hand-out; likewise.
            subscription_id: 32 hexadecimal digits, of no other one; None draws it.

        Raises:
            Refusal: FORBIDDEN: the queue is not in the credential's scope. PROTOCOL: a value is out of its range.
        """
        try:
            check_queue(queue)
        except ConfigurationError as error:
            raise Refusal(ErrorCode.PROTOCOL, str(error)) from None
        if not credential.covers(queue):
            raise Refusal(ErrorCode.FORBIDDEN, "the queue is not in the credential's scope")
        budget = self._settings.budget if budget is None else budget
        window = self._settings.window if window is None else window
        demand(1 <= budget <= MOST_BUDGET, f"budget: 1 to {MOST_BUDGET}")
        demand(1 <= window <= MOST_WINDOW, f"window: 1 to {MOST_WINDOW}")
        for name, given in (("first_sequence", first_sequence), ("first_generation", first_generation)):
            demand(1 <= given <= LAST_GENERATION, f"{name}: 1 to {LAST_GENERATION}")
        made_id = self._new_id(subscription_id, is_taken=lambda given: self._store.subscription(given) is not None)
        row = SubscriptionRow(
            *(made_id, credential.name, queue, True, False, budget, window),
            *(first_sequence, first_generation),
        )
        self._store.add_subscription(row)
        return row

    @staticmethod
    def _new_id(given: str | None, *, is_taken: Callable[[str], bool]) -> str:
        if given is None:
            return secrets.token_hex(16)
        demand(is_id(given) and not is_taken(given), "an id is 32 small hexadecimal digits, and is given once")
        return given

    def subscription(self, credential: CredentialRow, subscription_id: str) -> SubscriptionRow:
        """A subscription, for who may manage it: its maker, and the operator.

        Raises:
            Refusal: NOT_FOUND, or FORBIDDEN.
        """
        found = self._store.subscription(subscription_id)
        if found is None:
            raise Refusal(ErrorCode.NOT_FOUND, "there is no such subscription")
        if not credential.is_operator and credential.name != found.credential:
            raise Refusal(ErrorCode.FORBIDDEN, "another credential made the subscription")
        return found

    def subscriptions(self, credential: CredentialRow) -> list[SubscriptionRow]:
        """Those that a credential made."""
        return self._store.subscriptions_by(credential.name)

    def operators_subscription(self, queue: str) -> SubscriptionRow:
        """One of the operator's for a queue: made where there is none yet.

        Raises:
            Refusal: PROTOCOL: the queue is none.
        """
        operator = self._demand_credential(OPERATOR)
        found = (each for each in self.subscriptions(operator) if each.queue == queue)
        return next(found, None) or self.subscribe(operator, queue)

    def consumable(self, credential: CredentialRow, subscription_id: str) -> SubscriptionRow:
        """A subscription, for who may consume it: its maker, while its queue is in the maker's scope.

        Asked at registration and by each heartbeat. The credential is looked up anew.

        Raises:
            Refusal: UNAUTHENTICATED, NOT_FOUND, FORBIDDEN or HISTORY_GAP.
        """
        now = self._store.credential_by("name", credential.name)
        if now is None or now.is_revoked:
            raise Refusal(ErrorCode.UNAUTHENTICATED, "the credential was taken back")
        found = self._store.subscription(subscription_id)
        if found is None:
            raise Refusal(ErrorCode.NOT_FOUND, "there is no such subscription")
        if found.credential != now.name or not now.covers(found.queue):
            raise Refusal(ErrorCode.FORBIDDEN, "the credential may not consume the subscription")
        if found.has_gap:
            raise Refusal(ErrorCode.HISTORY_GAP, "events of the subscription are gone")
        return found

    def enable(self, subscription_id: str, *, is_enabled: bool) -> None:
        """Pause a subscription, or let it go on. What is handed out may still be acknowledged."""
        self._store.enable(subscription_id, is_enabled=is_enabled)
        self._tell(subscription_id)

    def trim_history(self, subscription_id: str) -> int:
        """Drop the events that have not come into the window: from then on there is a gap, and nobody may register.

        Returns:
            How many; 0 leaves everything as it was.
        """
        subscription = self._known(subscription_id)
        with self._store.transaction():
            dropped = self._store.drop_beyond_window(subscription)
            if dropped:
                self._store.note_gap(subscription_id)
        return dropped

    def _known(self, subscription_id: str) -> SubscriptionRow:
        found = self._store.subscription(subscription_id)
        if found is None:
            raise Refusal(ErrorCode.NOT_FOUND, "there is no such subscription")
        return found

    # ------------------------------------------------------------ events
    def publish(
        self,
        queue: str,
        snapshot: bytes,
        *,
        event_type: str = "task.succeeded",
        occurred_at: str | None = None,
        event_id: str | None = None,
    ) -> list[Published]:
        """A task's result: an event for every subscription of the queue, with the snapshot frozen as it is.

        Args:
            queue: that the task ran in.
            snapshot: JSON object; its octets are delivered as they are. `task_id` is 32 hexadecimal digits, and
                `status` what the type ends in.
            event_type: such as `task.succeeded`.
            occurred_at: RFC 3339 in UTC with milliseconds; None takes the server's time.
            event_id: 32 hexadecimal digits, of no other event, where the queue has one subscription; None draws it.

        Raises:
            Refusal: PROTOCOL: the snapshot is none, does not fit the type, or is too long for a frame; the id is none.
        """
        snapshot = snapshot.strip(b" \t\r\n")
        moment = occurred_at or _rfc3339(self.now())
        task_id = check_result(snapshot, event_type, moment)
        published = []
        with self._store.transaction():
            for subscription in self._store.subscriptions_of(queue):
                row = self._new_delivery(subscription, event_id, (event_type, moment, task_id, snapshot))
                self._store.add_delivery(row)
                self._store.move_sequence(subscription.id, subscription.next_sequence + 1)
                published.append(Published(subscription.id, row.event_id))
        for each in published:
            self._tell(each.subscription_id)
        return published

    def _new_delivery(
        self, subscription: SubscriptionRow, event_id: str | None, result: tuple[str, str, str, bytes]
    ) -> DeliveryRow:
        demand(subscription.next_sequence <= LAST_GENERATION, "a subscription has no further sequence number")
        event_type, moment, task_id, snapshot = result
        made_id = self._new_id(event_id, is_taken=lambda given: self._store.delivery("event_id", given) is not None)
        standing = Standing(subscription.budget, generation=subscription.first_generation - 1, due_at=self.now())
        return DeliveryRow(
            *(0, made_id, subscription.id, event_type, subscription.next_sequence),
            *(moment, task_id, snapshot, standing),
        )

    def events(self, subscription_id: str, state: State | None = None) -> list[DeliveryRow]:
        """Those of a subscription, oldest first."""
        return self._store.deliveries(subscription_id, state)

    def counts(self, subscription_id: str) -> dict[State, int]:
        """How many of a subscription's events are in each state."""
        return self._store.counts(subscription_id)

    def event(self, subscription_id: str, event_id: str) -> DeliveryRow:
        """One of them.

        Raises:
            Refusal: NOT_FOUND.
        """
        found = self._store.delivery("event_id", event_id)
        if found is None or found.subscription != subscription_id:
            raise Refusal(ErrorCode.NOT_FOUND, "the subscription has no such event")
        return found

    def add_budget(self, subscription_id: str, event_id: str, more: int) -> DeliveryRow:
        """Let an event be handed out `more` times; one that is EXPIRED is due at once.

        Raises:
            Refusal: NOT_FOUND; PROTOCOL: out of range.
            Conflict: it is acknowledged.
        """
        demand(1 <= more <= MOST_BUDGET, f"more: 1 to {MOST_BUDGET}")
        found = self.event(subscription_id, event_id)
        demand(found.standing.budget + more <= MOST_BUDGET, f"more: with what there is {MOST_BUDGET} at most")
        changed = self._change(found, _or_conflict(lambda: rules.add_budget(found.standing, more, self.now())))
        self._tell(subscription_id)
        return changed

    def event_of(self, subscription_id: str, delivery_id: str) -> str | None:
        """The event that a delivery of the subscription brought; None where there is no such delivery."""
        for number, _ in self._store.hand_outs(delivery_id).values():
            found = self._store.delivery("number", number)
            if found is not None and found.subscription == subscription_id:
                return found.event_id
        return None

    def replace_proof(self, subscription_id: str, event_id: str) -> DeliveryRow:
        """As if somebody else had been given the event, and had given up at once: proofs so far are lost.

        Raises:
            Refusal: NOT_FOUND.
            Conflict: it is EXPIRED or acknowledged.
        """
        return self._put_back(subscription_id, event_id, lambda was: rules.replace_proof(was, self.now()))

    def end_lease(self, subscription_id: str, event_id: str, *, more: int = 0) -> DeliveryRow:
        """Let the lease of an event run out now: due at once, or EXPIRED. Its proof is good until it is handed out.

        Args:
            subscription_id: whose event.
            event_id: which.
            more: hand-outs that its budget grows by first.

        Raises:
            Refusal: NOT_FOUND.
            Conflict: it is not leased.
        """
        return self._put_back(subscription_id, event_id, lambda was: rules.end_lease(was, more, self.now()))

    def reopen(self, subscription_id: str, event_id: str) -> DeliveryRow:
        """Let an event that is acknowledged be handed out once more, as if the acknowledgement had never come.

        Raises:
            Refusal: NOT_FOUND.
            Conflict: it is not acknowledged.
        """
        return self._put_back(subscription_id, event_id, lambda was: rules.reopen(was, self.now()))

    def _put_back(self, subscription_id: str, event_id: str, decide: Callable[[Standing], Standing]) -> DeliveryRow:
        found = self.event(subscription_id, event_id)
        changed = self._change(found, _or_conflict(lambda: decide(found.standing)))
        self._tell(subscription_id)
        return changed

    def _change(self, row: DeliveryRow, standing: Standing) -> DeliveryRow:
        self._store.change_standing(row.number, standing)
        return replace(row, standing=standing)

    # ------------------------------------------------------------ what connections do
    def claim(self, subscription_id: str, holder: str, capacity: int) -> Grants:
        """Claim for a connection: recover what ran out, hand out what is due and fits.

        Args:
            subscription_id: whose events.
            holder: the connection's session.
            capacity: how many leases it may have at once; those that ran out do not count.
        """
        now, subscription = self.now(), self._known(subscription_id)
        held, first_end = self._store.held(holder, now)
        room = capacity - held
        if not subscription.is_enabled:
            return Grants()
        if room <= 0:
            return Grants(look_again_in=None if first_end is None else first_end - now)
        with self._store.transaction():
            found = self._store.claimable(subscription, room, now)
            done = rules.claim([standing for _, standing in found], room, now, self._settings.terms, is_enabled=True)
            for (number, was), standing in zip(found, done.standings, strict=True):
                if standing is not was:
                    self._store.change_standing(number, standing)
            granted = tuple(self._grant(found[index][0], holder) for index in done.handed_out)
            next_time = self._store.next_time(subscription_id, now)
        return Grants(granted, len(done.recovered), None if next_time is None else next_time - now)

    def _grant(self, number: int, holder: str) -> Granted:
        row = self._store.delivery("number", number)
        assert row is not None  # noqa: S101 - of this transaction
        before = None if self._settings.new_delivery_ids else self._store.last_id(number)
        delivery_id, secret = before or secrets.token_hex(16), secrets.token_urlsafe(32)  # 43 characters for 32 octets
        self._store.note_hand_out(delivery_id, row.standing.generation, number, _digest(secret), holder)
        return Granted(row, delivery_id, Secret(secret))

    def acknowledge(self, subscription_id: str, delivery_id: str, generation: int, secret: str) -> DeliveryRow:
        """Take a proof. The same one is as good again, over any connection of the subscription.

        Args:
            subscription_id: whose events.
            delivery_id: that the proof names.
            generation: that it shows.
            secret: that it shows.

        Raises:
            Refusal: NOT_FOUND: the subscription has no such delivery; PROOF_LOST: a newer generation replaced the
                proof; FORBIDDEN: it was never given.
        """
        event_id = self.event_of(subscription_id, delivery_id)
        if event_id is None:
            raise Refusal(ErrorCode.NOT_FOUND, "the subscription has no such delivery")
        found = self.event(subscription_id, event_id)
        hand_outs = self._store.hand_outs(delivery_id)
        _, digest = hand_outs.get(generation, (0, b""))
        is_genuine = hmac.compare_digest(digest, _digest(secret))
        verdict = rules.judge(found.standing, generation, is_genuine=is_genuine)
        if verdict is Verdict.LOST:
            raise Refusal(ErrorCode.PROOF_LOST, "a newer generation replaced the proof")
        if verdict is Verdict.FORGED:
            raise Refusal(ErrorCode.FORBIDDEN, "the proof was never given")
        changed = self._change(found, rules.acknowledge(found.standing))
        self._tell(subscription_id)
        return changed


def check_queue(name: str) -> None:
    """Refuse what cannot be the name of a queue.

    Raises:
        ConfigurationError: it cannot.
    """
    require(_NAME.fullmatch(name) is not None, "queue: small letters, digits, '.', '_' and '-', up to 64 of them")


def _or_conflict(decide: Callable[[], Standing]) -> Standing:
    try:
        return decide()
    except NotAllowed as error:
        raise Conflict(str(error)) from None


def _new_bearer() -> str:
    return f"orbit_{secrets.token_urlsafe(32)}"


def _digest(secret: str) -> bytes:
    """A plain hash is enough: what is hashed has 256 random bits."""
    return hashlib.sha256(secret.encode()).digest()


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
