"""What is published, in which order, and what must become of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from inbox.demo.jobs import Job, Sender, Status, make_job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inbox.core.cloudevents import Encoded

__all__ = ["ACCOUNTS", "Effect", "Expected", "Refusal", "Sending", "make_script"]

#: Names of the accounts there are. A tenant is an account.
ACCOUNTS: Final = tuple(f"tenant-{number:02}" for number in range(1, 41))
_CLOSED: Final = "tenant-closed"

#: The newer generation of the provider's types, for which the demo's Inbox has no handler.
_NEWER: Final = "studio.lerian.fetcher"

_FAILED_SHARE: Final = 0.1
_ONE_REFUSED_OF: Final = 250
_ONE_UNKNOWN_OF: Final = 500
_FEWEST_FOR_REFUSALS: Final = 20


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
    """

    job: Job
    sender: Sender
    due: Effect | Refusal

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
                self.effects[sending.job.event_id] = sending.due
            else:
                self.refusals[sending.job.event_id] = sending.due

    @property
    def events(self) -> int:
        """Different events."""
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


def make_script(events: int, duplicates: float, seed: int, exchange: str) -> list[Sending]:
    """Every publish there is to be, shuffled.

    Args:
        events: how many different ones, at least 1.
        duplicates: share of them that is published twice, from 0 to 1.
        seed: the same one gives the same events in the same order.
        exchange: where they go; it is part of each signature.
    """
    draw = random.Random(seed)  # noqa: S311 - events for show
    key = draw.randbytes(32)
    senders = {tenant: Sender(exchange, tenant, key) for tenant in (*ACCOUNTS, _CLOSED)}
    kinds = _kinds(events)
    first = []
    for number in range(events):
        kind = kinds[number] if number < len(kinds) else "completed"
        status: Status = "failed" if kind == "failed" else "completed"
        tenant = _CLOSED if kind == "refused" else draw.choice(ACCOUNTS)
        cents = draw.randrange(1, 10_000)
        job = make_job(number, status, key, draw, {"amountCents": cents})
        sender = Sender(exchange, tenant, key, _NEWER) if kind == "unknown" else senders[tenant]
        first.append(Sending(job, sender, _due(kind, tenant, cents)))
    script = [*first, *draw.sample(first, round(events * duplicates))]
    draw.shuffle(script)
    return script


def _kinds(events: int) -> list[str]:
    """What is special about the first events; all others are completed jobs of an account that there is."""
    failed = round(events * _FAILED_SHARE)
    refused = unknown = 0
    if events >= _FEWEST_FOR_REFUSALS:
        refused, unknown = max(1, events // _ONE_REFUSED_OF), max(1, events // _ONE_UNKNOWN_OF)
    return ["failed"] * failed + ["refused"] * refused + ["unknown"] * unknown


def _due(kind: str, tenant: str, cents: int) -> Effect | Refusal:
    match kind:
        case "refused":
            return Refusal("rejected")
        case "unknown":
            return Refusal("no-handler")
        case "failed":
            return Effect(tenant, kind, 0)
        case _:
            return Effect(tenant, kind, cents)
