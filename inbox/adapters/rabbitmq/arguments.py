"""What an existing queue is like, found out over AMQP alone, and what would drop events.

AMQP has no "show me this queue", but a broker that refuses a declaration names the first argument that differs,
with both values. So a queue's arguments are found by declaring it with what is known so far and learning one more
from each refusal. Policies never show; see `RabbitMQSettings.dead_letters_by_policy`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Belongs to streams only: brokers ignore it for a classic or quorum queue that exists, and refuse to create one
#: with it (3.10 and 4.3 alike). So asking can never create a queue, not even one deleted a moment ago.
NEVER_CREATE = {"x-max-age": "none"}

#: More deliveries than can happen. RabbitMQ 4 has a limit of 20 where none is set, and takes -1 for none; but 3.x
#: takes -1 as well and gives a message up at its first return. This number means the same to both, and a queue
#: declared with it is still the same after an upgrade of the broker.
NO_DELIVERY_LIMIT = 2**31 - 1

#: From this version on a quorum queue without the argument has a limit (rabbitmq.com/docs/quorum-queues).
DEFAULT_LIMIT_SINCE = (4, 0)
DEFAULT_LIMIT = 20

_MISMATCH = re.compile(
    r"inequivalent arg '([\w-]{1,64})' for (?:queue|exchange) .*?: received (.*) but current is (.*)$", re.DOTALL
)
_TYPED = re.compile(r"^the value '(.*)' of type '(\w+)'$", re.DOTALL)
_PLAIN = re.compile(r"^'(.*)'$", re.DOTALL)
_TEXT_TYPES = ("longstr", "binary")

Argument = str | int | None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An argument that differs between what was asked for and what exists.

    Attributes:
        key: its name.
        asked: what the declaration said; None where it said nothing.
        existing: what the broker has; None where it has nothing.
    """

    key: str
    asked: Argument
    existing: Argument


def parse_mismatch(reply: str) -> Mismatch | None:
    """Read the text of a 406 PRECONDITION_FAILED about inequivalent arguments; None for others."""
    found = _MISMATCH.search(reply)
    return Mismatch(found[1], _value(found[2]), _value(found[3])) if found else None


def _value(text: str) -> Argument:
    typed = _TYPED.match(text)
    if typed:
        is_number = typed[2] not in _TEXT_TYPES and re.fullmatch(r"-?\d{1,19}", typed[1])
        return int(typed[1]) if is_number else typed[1]
    plain = _PLAIN.match(text)
    return plain[1] if plain else None


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue that exists.

    Attributes:
        name: its name.
        arguments: its arguments, without what policies add.
        version: of the broker, major and minor.
    """

    name: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    version: tuple[int, int] = (0, 0)

    @property
    def kind(self) -> str:
        """`classic` unless the argument says otherwise."""
        return str(self.arguments.get("x-queue-type", "classic"))

    @property
    def delivery_limit(self) -> int | None:
        """Returns after which the broker gives a message up; None where it never does."""
        if self.kind != "quorum":
            return None
        limit = self.arguments.get("x-delivery-limit")
        if not isinstance(limit, int):
            return DEFAULT_LIMIT if self.version >= DEFAULT_LIMIT_SINCE else None
        is_none = limit >= NO_DELIVERY_LIMIT or (limit < 0 and self.version >= DEFAULT_LIMIT_SINCE)
        return None if is_none else max(limit, 0)

    @property
    def gives_up(self) -> list[str]:
        """Why this queue gives messages up by itself, in words; empty where it never does."""
        reasons = []
        if self.delivery_limit is not None:
            reasons.append(f"after {self.delivery_limit} returns (x-delivery-limit)")
        if self.arguments.get("x-message-ttl") is not None:
            reasons.append("when they grow old (x-message-ttl)")
        is_dropping = self.arguments.get("x-overflow", "drop-head") == "drop-head"
        bounds = [bound for bound in ("x-max-length", "x-max-length-bytes") if self.arguments.get(bound) is not None]
        return reasons + [f"when it is full ({bound})" for bound in bounds if is_dropping]

    @property
    def dead_letter_exchange(self) -> str | None:
        """The exchange for what is given up, "" being the default one; None where there is none."""
        exchange = self.arguments.get("x-dead-letter-exchange")
        return None if exchange is None else str(exchange)

    @property
    def next_queue(self) -> str | None:
        """The queue that dead letters go to, where the arguments alone tell."""
        key = self.arguments.get("x-dead-letter-routing-key")
        return str(key) if self.dead_letter_exchange == "" and key is not None else None


def problems_of(facts: QueueFacts, *, dead_letters_by_policy: bool) -> list[str]:
    """What would lose events in this queue by itself, a sentence each with the fix.

    Args:
        facts: the queue.
        dead_letters_by_policy: someone vouches for a dead-letter exchange that cannot be seen.
    """
    problems = []
    if facts.kind not in ("quorum", "classic"):
        problems.append(
            "it is neither a quorum nor a classic queue: bind a queue of one of these kinds and consume that"
        )
    if facts.arguments.get("x-expires") is not None:
        problems.append("the broker deletes it when nobody consumes (x-expires): declare it without")
    if facts.gives_up and facts.dead_letter_exchange is None and not dead_letters_by_policy:
        problems.append(
            f"the broker drops its messages {' and '.join(facts.gives_up)}, for it has no x-dead-letter-exchange: "
            f"give it one, or x-delivery-limit {NO_DELIVERY_LIMIT}, or, where a policy does, say so with "
            "RabbitMQSettings(dead_letters_by_policy=True)"
        )
    if facts.gives_up and facts.dead_letter_exchange == "" and facts.next_queue is None:
        problems.append(
            "its dead letters go to the default exchange under the routing key of their first publish, which names "
            "no queue: set x-dead-letter-routing-key"
        )
    return problems


def closes_cycle(path: list[QueueFacts], following: str) -> bool:
    """Whether dead letters come back to a queue they were in, with no rejection on the way.

    The broker then drops them (rabbitmq.com/docs/dlx: "cycles [...] the message will be dropped if there
    was no rejections in the entire cycle").

    Args:
        path: queues from the consumed one on, each one's dead letters going to the next.
        following: the queue that those of the last one go to.
    """
    names = [facts.name for facts in path]
    if following not in names:
        return False
    return all(facts.gives_up for facts in path[names.index(following) :])
