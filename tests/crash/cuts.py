"""Cutting a link at every packet of something in turn: before it, inside of it and behind it, either way.

A quiet run through the proxy says how many packets there are. Without a seed every position has its turn, with one
some do.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pytest

from inbox.testing.faults import Direction, Fault, FaultProxy

CUTS = (Fault.CUT_BEFORE, Fault.CUT_INSIDE, Fault.CUT_AFTER)
#: Positions of one test under a seed.
DRAWN = 3

Known = TypeVar("Known")


@dataclass(frozen=True)
class Position:
    """Where a link is cut."""

    direction: Direction
    number: int
    fault: Fault


class Repeated(ABC, Generic[Known]):
    """What is done again and again through one consumer, and takes as many packets each time."""

    @abstractmethod
    async def warm(self) -> Known:
        """Whatever was lost before is made again, what it left has come back and ended; what `run` wants of it."""

    @abstractmethod
    async def run(self, known: Known) -> None:
        """It, to its end."""

    async def count(self, proxy: FaultProxy) -> dict[Direction, int]:
        """Packets of an undisturbed one over one link."""
        known = await self.warm()
        before = proxy.traffic.copy()
        await self.run(known)
        spent = proxy.traffic - before
        return {direction: spent.sent(direction) for direction in Direction}

    async def cut(self, proxy: FaultProxy, position: Position) -> None:
        known = await self.warm()
        broken = proxy.break_at(position.direction, position.number, position.fault)
        await self.run(known)
        assert broken.reached.is_set(), f"{position} was really reached"

    async def cut_everywhere(
        self, proxy: FaultProxy, counts: dict[Direction, int], request: pytest.FixtureRequest
    ) -> str:
        """Cut at every position, or under a seed at some; what was done, in words."""
        assert all(counts.values()), counts
        positions = positions_of(counts, CUTS)
        chosen = drawn(positions, request)
        for position in chosen:
            await self.cut(proxy, position)
        await self.warm()
        return f"{counts}, {len(chosen)} of {len(positions)} positions"


def positions_of(counts: dict[Direction, int], faults: Sequence[Fault]) -> list[Position]:
    """Each fault at each of so many packets."""
    return [
        Position(direction, number, fault)
        for direction, packets in counts.items()
        for number in range(1, packets + 1)
        for fault in faults
    ]


def drawn(positions: list[Position], request: pytest.FixtureRequest, number: int = DRAWN) -> list[Position]:
    """All of them, or under a seed some."""
    seed = request.config.getoption("--rotate")
    if seed is None or len(positions) <= number:
        return positions
    return random.Random(f"{seed} {request.node.nodeid}").sample(positions, number)  # noqa: S311 - to be repeated
