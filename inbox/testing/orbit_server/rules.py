"""What may happen to a delivery, as one table, and the decisions about it. No clock, no socket, no store.

What stands here is the delivery of one event to one subscription. Its generation grows with every hand-out, and every
hand-out has a secret of its own. Whoever asks tells the time; seconds are those of the server's clock.

```
            hand-out             acknowledge
    due ─────────────► leased ─────────────► acknowledged
     ▲  ◄───────────── │    │                    ▲
     │   recover       │    │ exhaust            │ acknowledge: the proof of the last generation
     │   replace       │    ▼                    │ is good until a newer one replaces it
     └──────────────── expired ──────────────────┘
        add budget

    Of the tests, not of the platform: replace, and reopen, from acknowledged back to due.
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from inbox.adapters.websocket.codec import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LAST_GENERATION",
    "TRANSITIONS",
    "Claim",
    "NotAllowed",
    "Standing",
    "State",
    "Step",
    "Terms",
    "Verdict",
    "acknowledge",
    "add_budget",
    "back_off",
    "claim",
    "end_lease",
    "ends_connection",
    "hand_out",
    "judge",
    "recover",
    "reopen",
    "replace_proof",
]

#: Generations are uint64.
LAST_GENERATION: Final = 2**64 - 1


class State(StrEnum):
    """How a delivery stands.

    Attributes:
        DUE: waits to be handed out, perhaps not before a time.
        LEASED: handed out; whether its lease has run out is noticed by the next claim only.
        EXPIRED: its budget is used up. It still fills the window, and waits for the management API.
        ACKNOWLEDGED: done. The same proof may be shown again.
    """

    DUE = "due"
    LEASED = "leased"
    EXPIRED = "expired"
    ACKNOWLEDGED = "acknowledged"


class Step(StrEnum):
    """What happens to one."""

    HAND_OUT = "hand-out"
    RECOVER = "recover"
    EXHAUST = "exhaust"
    ACKNOWLEDGE = "acknowledge"
    ADD_BUDGET = "add-budget"
    REPLACE = "replace"
    REOPEN = "reopen"


#: What is not in it is refused and changes nothing.
TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = MappingProxyType(
    {
        (State.DUE, Step.HAND_OUT): State.LEASED,
        (State.LEASED, Step.RECOVER): State.DUE,
        (State.LEASED, Step.EXHAUST): State.EXPIRED,
        # A lease that ran out does not spoil a proof, only a newer generation does (the description, section 2: "where
        # the original proof has been replaced by a new generation").
        (State.DUE, Step.ACKNOWLEDGE): State.ACKNOWLEDGED,
        (State.LEASED, Step.ACKNOWLEDGE): State.ACKNOWLEDGED,
        (State.EXPIRED, Step.ACKNOWLEDGE): State.ACKNOWLEDGED,
        (State.ACKNOWLEDGED, Step.ACKNOWLEDGE): State.ACKNOWLEDGED,
        (State.DUE, Step.ADD_BUDGET): State.DUE,
        (State.LEASED, Step.ADD_BUDGET): State.LEASED,
        (State.EXPIRED, Step.ADD_BUDGET): State.DUE,
        # The switch of the tests: as if somebody else had been given it, and had given up at once.
        (State.DUE, Step.REPLACE): State.DUE,
        (State.LEASED, Step.REPLACE): State.DUE,
        # As above: as if the acknowledgement had never come.
        (State.ACKNOWLEDGED, Step.REOPEN): State.DUE,
    }
)


class NotAllowed(Exception):
    """The table does not know this step from this state.

    Args:
        state: how the delivery stands.
        step: what was wanted.
    """

    def __init__(self, state: State, step: Step) -> None:
        self.state = state
        self.step = step
        super().__init__(f"no {step} of what is {state}")


class Verdict(StrEnum):
    """What a shown proof is.

    Attributes:
        GOOD: of the last hand-out.
        LOST: a newer generation replaced it.
        FORGED: of no hand-out that there was.
    """

    GOOD = "good"
    LOST = "lost"
    FORGED = "forged"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which deliveries are handed out; `OrbitServerSettings` checks their ranges.

    Attributes:
        lease: seconds.
        first_delay: seconds from the end of the first lease to the next hand-out; each later one takes twice as long.
        longest_delay: seconds, at most.
    """

    lease: float = 30.0
    first_delay: float = 1.0
    longest_delay: float = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How one delivery stands.

    Attributes:
        budget: hand-outs that it may take in all.
        generation: of the last hand-out; before the first one, one less than the first will have.
        spent: hand-outs that it took.
        due_at: not handed out before that time. Of what is due.
        lease_ends: of what is leased.
    """

    budget: int
    state: State = State.DUE
    generation: int = 0
    spent: int = 0
    due_at: float = 0.0
    lease_ends: float = 0.0

    @property
    def is_used_up(self) -> bool:
        """Whether it may not be handed out again."""
        return self.spent >= self.budget or self.generation >= LAST_GENERATION

    def after(self, step: Step, **changes: float) -> Standing:
        """The standing after `step`.

        Raises:
            NotAllowed: the table does not know it.
        """
        state = TRANSITIONS.get((self.state, step))
        if state is None:
            raise NotAllowed(self.state, step)
        return replace(self, state=state, **changes)  # type: ignore[arg-type] # `**` is not looked into


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim did.

    Attributes:
        standings: of the same deliveries in the same order, as they stand now.
        handed_out: indices of those that go out.
        recovered: indices of those whose lease had run out, to be due again or EXPIRED.
        look_again_at: time from which another claim would do something; None where only news can bring it.
    """

    standings: tuple[Standing, ...]
    handed_out: tuple[int, ...] = ()
    recovered: tuple[int, ...] = ()
    look_again_at: float | None = None


def claim(standings: Sequence[Standing], room: int, now: float, terms: Terms, *, is_enabled: bool) -> Claim:
    """Claim for one consumer: first recover what ran out, then hand out what is due.

    "Recovery is triggered only by claim activity of an enabled subscription; there is no independent sweeper" (the
    description, section 2): leases that ran out are noticed here and nowhere else.

    Args:
        standings: of the subscription's window, oldest event first. What can neither be recovered nor handed out now
            may be left out, and is not in `look_again_at` then.
        room: how many more the consumer takes.
        now: the time.
        terms: lease and back-off.
        is_enabled: False of a paused subscription.
    """
    if not is_enabled or room <= 0:
        return Claim(tuple(standings))
    found = [recover(standing, now, terms) for standing in standings]
    recovered = tuple(index for index, was in enumerate(standings) if found[index] is not was)
    due = [
        index
        for index, each in enumerate(found)
        if each.state is State.DUE and each.due_at <= now and not each.is_used_up
    ]
    handed_out = tuple(due[:room])
    for index in handed_out:
        found[index] = hand_out(found[index], now, terms)
    return Claim(tuple(found), handed_out, recovered, _next_time(found, now))


def _next_time(standings: Sequence[Standing], now: float) -> float | None:
    """Of what stayed due, for there was no room, nothing is said: room comes with news."""
    times = [each.lease_ends for each in standings if each.state is State.LEASED]
    times += [each.due_at for each in standings if each.state is State.DUE and each.due_at > now]
    return min(times, default=None)


def hand_out(standing: Standing, now: float, terms: Terms) -> Standing:
    """Lease it, in a new generation. Costs one of its budget.

    Raises:
        NotAllowed: it is not due.
    """
    return standing.after(
        Step.HAND_OUT,
        generation=standing.generation + 1,
        spent=standing.spent + 1,
        lease_ends=now + terms.lease,
    )


def recover(standing: Standing, now: float, terms: Terms) -> Standing:
    """The same standing, unless its lease has run out: then due after the back-off, or EXPIRED."""
    if standing.state is not State.LEASED or standing.lease_ends > now:
        return standing
    if standing.is_used_up:
        return standing.after(Step.EXHAUST)
    return standing.after(Step.RECOVER, due_at=standing.lease_ends + back_off(standing.spent, terms))


def back_off(spent: int, terms: Terms) -> float:
    """Seconds from the end of a lease to the next hand-out.

    Args:
        spent: hand-outs so far, at least one.
        terms: of the server.
    """
    doublings = min(spent - 1, 64)  # further ones would only overflow
    return float(min(terms.first_delay * 2**doublings, terms.longest_delay))


def judge(standing: Standing, generation: int, *, is_genuine: bool) -> Verdict:
    """What a proof is worth.

    Args:
        standing: of the event that it is for.
        generation: that it shows.
        is_genuine: whether there was a hand-out of that generation, with that secret.
    """
    if not is_genuine:
        return Verdict.FORGED
    return Verdict.GOOD if generation == standing.generation else Verdict.LOST


def acknowledge(standing: Standing) -> Standing:
    """Acknowledge it by a good proof, for the first time or again."""
    return standing.after(Step.ACKNOWLEDGE)


def add_budget(standing: Standing, more: int, now: float) -> Standing:
    """Let it be handed out `more` times; what is EXPIRED is due at once.

    Raises:
        NotAllowed: it is acknowledged.
    """
    changes = {"due_at": now} if standing.state is State.EXPIRED else {}
    return standing.after(Step.ADD_BUDGET, budget=standing.budget + more, **changes)


def replace_proof(standing: Standing, now: float) -> Standing:
    """Let a newer generation replace the last one, and the one after it be due at once.

    Raises:
        NotAllowed: it is acknowledged or EXPIRED, or there is no further generation.
    """
    if standing.generation >= LAST_GENERATION:
        raise NotAllowed(standing.state, Step.REPLACE)
    return standing.after(Step.REPLACE, generation=standing.generation + 1, due_at=now)


def end_lease(standing: Standing, more: int, now: float) -> Standing:
    """Let its lease run out now, without the back-off after it: due at once, or EXPIRED.

    Args:
        standing: of what is leased.
        more: hand-outs that its budget grows by first.
        now: the time.

    Raises:
        NotAllowed: it is not leased.
    """
    granted = replace(standing, budget=standing.budget + more)
    return granted.after(Step.EXHAUST) if granted.is_used_up else granted.after(Step.RECOVER, due_at=now)


def reopen(standing: Standing, now: float) -> Standing:
    """Let what is acknowledged be due at once, with a hand-out more, as if the acknowledgement had never come.

    Raises:
        NotAllowed: it is not acknowledged.
    """
    return standing.after(Step.REOPEN, budget=standing.budget + 1, due_at=now)


def ends_connection(request: str, code: ErrorCode) -> bool:
    """Whether the server closes after an error frame.

    Args:
        request: `register`, `ack` or `ping`, that it answers.
        code: that it says.
    """
    if request == "register" or code in _NOTHING_FOLLOWS:
        return True
    return request == "ping" and code in (ErrorCode.FORBIDDEN, ErrorCode.NOT_FOUND)


_NOTHING_FOLLOWS: Final = frozenset({ErrorCode.PROTOCOL, ErrorCode.UNAUTHENTICATED, ErrorCode.HISTORY_GAP})
