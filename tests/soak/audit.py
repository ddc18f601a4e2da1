"""What must be there afterwards, by the database and the broker alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.crash.world import World

#: Most ids that a difference names.
_NAMED = 5


@dataclass(frozen=True)
class Order:
    """One event that was handed over, once or more often.

    Attributes:
        kind: its type.
        amount: what its effect adds to an account.
    """

    kind: str
    amount: int


async def audit(world: World, orders: Mapping[str, Order]) -> list[str]:
    """Every difference between what was handed over and what is there; none where all is right."""
    wanted = {identifier: order for identifier, order in orders.items() if order.kind != "reject"}
    rejected = {identifier for identifier, order in orders.items() if order.kind == "reject"}
    effects = [(row[0].decode(), int(row[1])) for row in world.query("SELECT event_id, amount FROM effect")]
    balances = int(world.query("SELECT COALESCE(SUM(balance), 0) FROM account")[0][0])
    owed = sum(order.amount for order in wanted.values())
    found = [
        *_compare("effects", [identifier for identifier, _ in effects], set(wanted)),
        *_compare("inbox rows", _ids(world, "SELECT event_id FROM inbox"), set(wanted)),
        *_compare("quarantine", _ids(world, "SELECT event_id FROM inbox_quarantine"), rejected),
    ]
    if balances != owed:
        found.append(f"balances: {balances}, not {owed}")
    if open_starts := _ids(world, "SELECT attempt_key FROM inbox_attempt WHERE open_since IS NOT NULL"):
        found.append(f"open starts: {_some(set(open_starts))}")
    if left := await world.left_in_queue():
        found.append(f"queues: {left} messages left")
    return found


def _ids(world: World, sql: str) -> list[str]:
    return [row[0].decode() for row in world.query(sql)]


def _compare(what: str, there: list[str], wanted: set[str]) -> list[str]:
    """What is missing, strange, or there more than once."""
    found = []
    seen: set[str] = set()
    twice: set[str] = set()
    for identifier in there:
        (twice if identifier in seen else seen).add(identifier)
    for name, ids in (("missing", wanted - seen), ("not wanted", seen - wanted), ("more than once", twice)):
        if ids:
            found.append(f"{what}: {name}: {_some(ids)}")
    return found


def _some(ids: set[str]) -> str:
    named = ", ".join(sorted(ids)[:_NAMED])
    return named if len(ids) <= _NAMED else f"{named} and {len(ids) - _NAMED} more"
