"""What is published, in which order, and what must become of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from inbox.demo.forgeries import FORGERIES, Forger
from inbox.demo.jobs import Job, Sender, Status, make_job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inbox.core.cloudevents import Encoded

__all__ = ["ACCOUNTS", "Effect", "Expected", "Refusal", "Sending", "key_of_seed", "make_script"]

#: Names of the accounts there are. A tenant is an account.
ACCOUNTS: Final = tuple(f"tenant-{number:02}" for number in range(1, 41))
_CLOSED: Final = "tenant-closed"

#: The newer generation of the provider's types, for which the demo's Inbox has no handler, unless it is for Fetcher.
_NEWER: Final = "studio.lerian.fetcher"

_FAILED_SHARE: Final = 0.1
_ONE_REFUSED_OF: Final = 250
_ONE_UNKNOWN_OF: Final = 500
_FEWEST_FOR_REFUSALS: Final = 20
_ONE_FORGED_OF: Final = 60


@dataclass(frozen=True, slots=True)
class Effect:
    """A line that an event must have in the ledger, once.

    Attributes:
        account: whose.
        kind: `completed` or `failed`.
        cents: what the account is credited; nothing for what failed.
    """

    account: str
    kind: str
    cents: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """That an event must be in quarantine, and have no effect."""

    reason: str


@dataclass(frozen=True, slots=True)
class Sending:
    """One publish of an event.

    Attributes:
        job: what the event is about.
        sender: who publishes it.
        due: what must become of the event, however often it is published.
        borrowed_id: the id that it carries, where that is not the job's.
    """

    job: Job
    sender: Sender
    due: Effect | Refusal
    borrowed_id: str | None = None

    @property
    def event_id(self) -> str:
        """The id that it carries."""
        return self.borrowed_id or self.job.event_id

    def encoded(self) -> Encoded:
        """The message, as it is published now."""
        return self.sender.encoded(self.job, time.time())


@dataclass(slots=True)
class Expected:
    """What must be in the database, by what was published so far.

    Attributes:
        deliveries: how many publishes there were.
        effects: by event id.
        refusals: by event id.
    """

    deliveries: int = 0
    effects: dict[str, Effect] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)

    def add(self, sendings: Iterable[Sending]) -> None:
        """Note that these were published."""
        for sending in sendings:
            self.deliveries += 1
            if isinstance(sending.due, Effect):
                self.effects[sending.event_id] = sending.due
            else:
                self.refusals[sending.event_id] = sending.due

    @property
    def events(self) -> int:
        """Different events. What is forged under the id of another one is an event of its own."""
        return len(self.effects) + len(self.refusals)

    @property
    def duplicates(self) -> int:
        """Publishes of an event beyond its first."""
        return self.deliveries - self.events

    @property
    def cents(self) -> int:
        """What all accounts together must hold."""
        return sum(effect.cents for effect in self.effects.values())

    @property
    def balances(self) -> Counter[str]:
        """What each account must hold, in cents; those with nothing are left out."""
        balances = Counter[str]()
        for effect in self.effects.values():
            balances[effect.account] += effect.cents
        return +balances


def key_of_seed(seed: int) -> bytes:
    """The external HMAC key that a script's events are signed with."""
    return _drawn(seed).randbytes(32)


def _drawn(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - events for show


def make_script(events: int, duplicates: float, seed: int, exchange: str, *, forged: bool = False) -> list[Sending]:
    """Every publish there is to be, shuffled.

    Args:
        events: how many different ones, at least 1.
        duplicates: share of them that is published twice, from 0 to 1.
        seed: the same one gives the same events in the same order.
        exchange: where they go; it is part of each signature.
        forged: some of them are forgeries, and both generations of types are to be applied.
    """
    draw = _drawn(seed)
    key = draw.randbytes(32)
    senders = {tenant: Sender(exchange, tenant, key) for tenant in (*ACCOUNTS, _CLOSED)}
    kinds = _kinds(events, forged=forged)
    first: list[Sending] = []
    for number in range(events):
        kind = kinds[number] if number < len(kinds) else "completed"
        status: Status = "failed" if kind == "failed" else "completed"
        tenant = _CLOSED if kind == "refused" else draw.choice(ACCOUNTS)
        cents = draw.randrange(1, 10_000)
        job = make_job(number, status, key, draw, {"amountCents": cents})
        sender = Sender(exchange, tenant, key, _NEWER) if kind in ("unknown", "newer") else senders[tenant]
        first.append(Sending(job, sender, _due(kind, tenant, cents)))
    if forged:
        _forge(first, draw)
    script = [*first, *draw.sample(first, round(events * duplicates))]
    draw.shuffle(script)
    # What borrows an id comes before the event that it belongs to: it is to use that up, if it can.
    script.sort(key=lambda sending: sending.borrowed_id is None)
    return script


def _forge(first: list[Sending], draw: random.Random) -> None:
    """Turn the last ones into forgeries, of each kind in turn."""
    count = _forgeries(len(first))
    victims = draw.sample([each.job for each in first[: len(first) - count] if isinstance(each.due, Effect)], count)
    for number in range(count):
        forgery, victim = FORGERIES[number % len(FORGERIES)], victims[number]
        sending = first[-1 - number]
        forger = Forger(
            sending.sender.exchange,
            sending.sender.tenant,
            sending.sender.key,
            forgery=forgery,
            victim=victim if forgery.borrows else None,
        )
        borrowed = victim.event_id if forgery.borrows else None
        first[-1 - number] = Sending(sending.job, forger, Refusal(forgery.verdict), borrowed)


def _forgeries(events: int) -> int:
    """How many are forged: one of each kind at least, where there are enough others."""
    return max(events // _ONE_FORGED_OF, min(len(FORGERIES), events // 3)) if events >= _FEWEST_FOR_REFUSALS else 0


def _kinds(events: int, *, forged: bool) -> list[str]:
    """What is special about the first events; all others are completed jobs of an account that there is."""
    failed = round(events * _FAILED_SHARE)
    refused = other = 0
    if events >= _FEWEST_FOR_REFUSALS:
        refused, other = max(1, events // _ONE_REFUSED_OF), max(1, events // _ONE_UNKNOWN_OF)
    return ["failed"] * failed + ["refused"] * refused + ["newer" if forged else "unknown"] * other


def _due(kind: str, tenant: str, cents: int) -> Effect | Refusal:
    match kind:
        case "refused":
            return Refusal("rejected")
        case "unknown":
            return Refusal("no-handler")
        case "failed":
            return Effect(tenant, "failed", 0)
        case _:
            return Effect(tenant, "completed", cents)
