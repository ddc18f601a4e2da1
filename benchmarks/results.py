"""From runs to figures: medians, ratios, and whether they may be believed. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.catalog import NODE, RAW, Cell, Consumer, Load
from benchmarks.measure import Timing, WireCount

#: What the one by hand has to be, or everything is compared to a straw man.
RAW_COMMANDS: Final = 3.0
RAW_ACKS: Final = 1.0
#: The least that it has to reach of what Node does, and with how many in flight.
LEAST_OF_NODE: Final = 0.9
NODE_IN_FLIGHT: Final = 8


@dataclass
class Runs:
    """All runs of one cell.

    Attributes:
        cell: which.
        wire: what one delivery costs on the wire.
        timings: by round; a round whose run was wrong is missing.
        wrong: why none of it counts.
    """

    cell: Cell
    wire: WireCount | None = None
    timings: dict[int, Timing] = field(default_factory=dict)
    wrong: str | None = None

    @property
    def counts(self) -> bool:
        """Whether there are figures."""
        return self.wrong is None and bool(self.timings)


@dataclass(frozen=True)
class Ratio:
    """How one consumer does against the one by hand: above 1 is better.

    Attributes:
        median: of the rounds.
        low, high: of the rounds.
    """

    median: float
    low: float
    high: float


def ratio_of(runs: Runs, raw: Runs) -> Ratio | None:
    """Round by round, for both ran in it one after the other: what the machine did besides, it did to both.

    Of events a second; where one event is alone, of the time that half of them took.
    """
    shared = sorted(runs.timings.keys() & raw.timings.keys()) if runs.counts and raw.counts else []
    if not shared:
        return None
    alone = runs.cell.load.kind == "one alone"
    ratios = [
        raw.timings[number].p50_ms / runs.timings[number].p50_ms
        if alone
        else runs.timings[number].rate / raw.timings[number].rate
        for number in shared
    ]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def rows(measured: Sequence[Runs], databases: dict[str, str]) -> list[dict[str, Any]]:
    """One object a cell, as `latest.json` has them; a cell that is wrong has no figures and says why.

    Args:
        measured: in the order in which they are listed.
        databases: product and version, by the pair of servers.
    """
    raws = {runs.cell.load: runs for runs in measured if runs.cell.consumer == RAW}
    return [_row(runs, raws.get(runs.cell.load), databases) for runs in measured]


def _row(runs: Runs, raw: Runs | None, databases: dict[str, str]) -> dict[str, Any]:
    consumer, load = runs.cell.consumer, runs.cell.load
    ratio = None if raw is None else ratio_of(runs, raw)
    timings = list(runs.timings.values()) if runs.counts else []
    wire = runs.wire if runs.counts else None
    return {
        "id": consumer.id,
        "consumer": consumer.family,
        "mode": consumer.mode,
        "driver": consumer.driver,
        "loop": consumer.loop,
        "handler": consumer.handler,
        "in_flight": load.in_flight,
        "workload": load.workload,
        "database": databases.get(load.pair),
        "body_bytes": load.body,
        "rounds": len(timings),
        "msg_per_s": _median(timings, "rate", 0),
        "ratio_to_raw": None if ratio is None else round(ratio.median, 3),
        "ratio_low": None if ratio is None else round(ratio.low, 3),
        "ratio_high": None if ratio is None else round(ratio.high, 3),
        "p50_ms": _median(timings, "p50_ms", 3),
        "p99_ms": _median(timings, "p99_ms", 3),
        "cpu_us_per_msg": _median(timings, "cpu_us", 1),
        "database_cpu_us_per_msg": _median(timings, "database_cpu_us", 1),
        "broker_cpu_us_per_msg": _median(timings, "broker_cpu_us", 1),
        "db_commands_per_msg": None if wire is None else round(wire.commands, 2),
        "db_round_trips_per_msg": None if wire is None else round(wire.round_trips, 2),
        "db_questions_per_msg": _median(timings, "questions", 2),
        "acks_per_msg": None if wire is None else round(wire.acks, 2),
        "peak_rss_mb": _median(timings, "peak_rss_mb", 1),
        "wrong": runs.wrong,
    }


def _median(timings: Iterable[Timing], name: str, digits: int) -> float | None:
    values: list[float] = [value for timing in timings if (value := getattr(timing, name)) is not None]
    if not values:
        return None
    return round(statistics.median(values), digits or None)


def why_void(measured: Sequence[Runs]) -> list[str]:
    """Reasons for which nothing of the run may be quoted; none where it stands."""
    reasons = [f"{runs.cell}: {runs.wrong}" for runs in measured if runs.wrong is not None]
    for runs in measured:
        if runs.cell.consumer == RAW and runs.cell.load.kind == "all-new" and runs.wire is not None:
            reasons += _why_no_measure(runs.cell, runs.wire)
    for load in {runs.cell.load for runs in measured}:
        reasons += _why_slower_than_node(measured, load)
    return reasons


def _why_no_measure(cell: Cell, wire: WireCount) -> list[str]:
    given = (round(wire.commands, 2), round(wire.acks, 2))
    if given == (RAW_COMMANDS, RAW_ACKS):
        return []
    return [f"{cell}: it takes {given[0]} packets and {given[1]} acks an event, and not 3 and 1: no measure for others"]


def _why_slower_than_node(measured: Sequence[Runs], load: Load) -> list[str]:
    if load.in_flight != NODE_IN_FLIGHT or load.kind != "all-new" or load.body != Load.body:
        return []
    raw, node = (_find(measured, consumer, load) for consumer in (RAW, NODE))
    ratio = ratio_of(raw, node) if raw is not None and node is not None else None
    if ratio is None or ratio.median >= LEAST_OF_NODE:
        return []
    return [f"{load}: raw reaches {ratio.median:.2f} of Node, and not {LEAST_OF_NODE}: no measure for others"]


def _find(measured: Sequence[Runs], consumer: Consumer, load: Load) -> Runs | None:
    return next((runs for runs in measured if runs.cell == Cell(consumer, load)), None)
