"""What is compared: the consumers, the loads, and which of them a run measures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final, Literal

Kind = Literal["all-new", "10% duplicates", "all-duplicates", "one alone"]


@dataclass(frozen=True)
class Consumer:
    """One program that consumes.

    Attributes:
        id: its name in tables and for `--only`.
        family: what it is: `raw`, `core`, `inbox` and so on.
        program: module, or `node`.
        driver, loop, handler: how it reaches the database, on which event loop, with what in the handler's hands.
        batch: events that may share a transaction.
        prefetch: deliveries in hand for each event at work, of which a transaction of many is a batch's worth; None
            leaves it to the consumer's own default.
        needs: module that must be installed.
    """

    id: str
    family: str
    program: str
    driver: str = "aiomysql"
    loop: str = "asyncio"
    handler: str = "cursor"
    batch: int = 1
    prefetch: int | None = 1
    needs: str | None = None

    @property
    def mode(self) -> str:
        """Whether events share transactions."""
        return "per-event" if self.batch == 1 else "batch"

    @property
    def is_installed(self) -> bool:
        """Whether its library is there. Node's are found when they are installed."""
        return all(
            find_spec(name) is not None for name in (self.needs, self.loop) if name is not None and name != "node"
        )


def _inbox(handler: str, driver: str = "aiomysql", loop: str = "asyncio") -> Consumer:
    told = [part for part in (driver, loop) if part not in ("aiomysql", "asyncio")]
    return Consumer(
        "-".join(["inbox", handler, *told]),
        "inbox",
        "benchmarks.consumers.inbox_worker",
        driver,
        loop,
        handler,
        prefetch=None,
        needs="asyncmy" if driver == "asyncmy" else None,
    )


def _batches(handler: str, driver: str = "aiomysql", loop: str = "asyncio") -> Consumer:
    """The inbox with group commit. It has four times a batch in hand, its default."""
    alone = _inbox(handler, driver, loop)
    told = alone.id.removeprefix("inbox-").removeprefix("batch-")
    return replace(alone, id=f"inbox-batch-{told}", batch=BATCH, prefetch=4)


#: Events of one transaction, wherever they share one.
BATCH: Final = 100
_IN_BATCHES: Final = ("connection", "session", "batch-handler")

RAW: Final = Consumer("raw", "raw", "benchmarks.consumers.raw")
NODE: Final = Consumer("node", "node", "node", driver="mysql2", loop="node")
CONSUMERS: Final = (
    RAW,
    NODE,
    Consumer("raw-asyncmy", "raw", "benchmarks.consumers.raw_asyncmy", driver="asyncmy", needs="asyncmy"),
    Consumer(
        "raw-asyncmy-uvloop",
        "raw",
        "benchmarks.consumers.raw_asyncmy",
        driver="asyncmy",
        loop="uvloop",
        needs="asyncmy",
    ),
    Consumer("raw-coalesced", "raw", "benchmarks.consumers.raw_coalesced", prefetch=4),
    Consumer("raw-batch", "raw", "benchmarks.consumers.raw_batch", batch=BATCH, prefetch=4),
    Consumer(
        "raw-batch-at-once",
        "raw",
        "benchmarks.consumers.raw_batch",
        handler="cursor-batch",
        batch=BATCH,
        prefetch=4,
    ),
    Consumer("core", "core", "benchmarks.consumers.core", handler="core"),
    Consumer("orm", "orm", "benchmarks.consumers.orm", handler="orm"),
    Consumer("faststream", "faststream", "benchmarks.consumers.with_faststream", handler="core", needs="faststream"),
    *(_inbox(handler) for handler in ("connection", "session", "session-orm", "sync")),
    *(_inbox(handler, "asyncmy") for handler in ("connection", "session")),
    *(_inbox(handler, loop="uvloop") for handler in ("connection", "session")),
    *(_inbox(handler, "asyncmy", "uvloop") for handler in ("connection", "session", "session-orm", "sync")),
    *(_batches(handler) for handler in _IN_BATCHES),
    *(_batches(handler, "asyncmy", "uvloop") for handler in _IN_BATCHES),
)


@dataclass(frozen=True)
class Load:
    """What is consumed, and how much of it at once.

    Attributes:
        kind: what the deliveries are.
        in_flight: events at work at once.
        body: octets of each body.
        pair: of servers: `newest` is MySQL, `oldest` MariaDB.
    """

    kind: Kind = "all-new"
    in_flight: int = 8
    body: int = 512
    pair: str = "newest"

    @property
    def workload(self) -> str:
        """Its name, with what differs from the usual: ratios hold within one workload and number in flight."""
        size = [] if self.body == Load.body else [f"{self.body >> 10} KiB"]
        servers = [] if self.pair == Load.pair else ["MariaDB"]
        return ", ".join([self.kind, *size, *servers])

    def __str__(self) -> str:
        return f"{self.workload}, {self.in_flight} in flight"


@dataclass(frozen=True)
class Cell:
    """One figure: a consumer under a load."""

    consumer: Consumer
    load: Load

    def __str__(self) -> str:
        return f"{self.consumer.id}, {self.load}"


#: Deliveries of one timed run, by how many are in flight: one to three seconds each.
EVENTS: Final = {1: 1000, 8: 3000, 32: 5000, 128: 5000}
#: Of a quick one.
QUICK_EVENTS: Final = {1: 300, 8: 1200, 32: 2000, 128: 2000}
ALONE: Final = 200
_WITH_DUPLICATES: Final[tuple[Kind, ...]] = ("10% duplicates", "all-duplicates")
#: For the estimate: deliveries a second, and seconds that a run takes besides: publishing, a start, checks.
_RATES: Final = {1: 400, 8: 1300, 32: 1700, 128: 1700}
_RATE_IN_BATCHES: Final = 4000
_BESIDE: Final = 1.8
_SERVERS: Final = 25.0

_STRONGEST: Final = (
    *("raw", "node", "raw-coalesced", "core"),
    *("inbox-connection", "inbox-session", "inbox-connection-asyncmy-uvloop"),
)
_QUICK: Final = (
    *("raw", "node", "raw-coalesced", "core", "faststream"),
    *("inbox-connection", "inbox-session", "inbox-session-orm", "inbox-connection-asyncmy-uvloop"),
)
_QUICK_AT_32: Final = (
    *("raw", "raw-batch", "inbox-connection", "inbox-session"),
    *("inbox-batch-connection", "inbox-batch-handler", "inbox-batch-connection-asyncmy-uvloop"),
)


def _cells(load: Load, names: Sequence[str] | None = None) -> Iterator[Cell]:
    for consumer in CONSUMERS:
        if names is None or consumer.id in names:
            yield Cell(consumer, load)


def quick_grid() -> list[Cell]:
    """A look in four minutes: the strongest at 8 and, with batches, at 32; a few with duplicates and alone."""
    few = ("raw", "inbox-connection", "inbox-batch-connection")
    return [
        *_cells(Load(), _QUICK),
        *_cells(Load(in_flight=32), _QUICK_AT_32),
        *_cells(Load("all-duplicates", 32), few),
        *_cells(Load("one alone", 1), few),
    ]


def full_grid() -> list[Cell]:
    """Everything at 8 and at 32 in flight; the strongest under every other load, and batches where they differ."""
    in_batches = [consumer.id for consumer in CONSUMERS if consumer.batch > 1]
    # A duplicate costs the same whatever would have been handed to its handler.
    unlike = [name for name in in_batches if "session" not in name]
    alone = [name for name in in_batches if not name.startswith("raw")]
    loads = [
        *((Load(in_flight=number), in_batches) for number in (1, 128)),
        *((Load(kind, number), unlike) for kind in _WITH_DUPLICATES for number in (8, 32)),
        (Load("one alone", 1), alone),
        *((Load(body=64 << 10, in_flight=number), []) for number in (8, 32)),
        *((Load(in_flight=number, pair="oldest"), []) for number in (1, 8)),
        (Load(in_flight=32, pair="oldest"), ["raw-batch", "inbox-batch-connection", "inbox-batch-handler"]),
        (Load("one alone", 1, pair="oldest"), []),
    ]
    everything = [cell for number in (8, 32) for cell in _cells(Load(in_flight=number))]
    return everything + [cell for load, others in loads for cell in _cells(load, [*_STRONGEST, *others])]


def only(cells: Iterable[Cell], patterns: Sequence[str]) -> list[Cell]:
    """Those whose name matches one of `patterns`, and raw under each of their loads, for a ratio needs it.

    Args:
        cells: of a grid.
        patterns: regular expressions, looked for in names such as `inbox-session, all-new, 8 in flight`; all where
            there are none.
    """
    listed = list(cells)
    if not patterns:
        return listed
    chosen = {cell for cell in listed if any(re.search(pattern, str(cell)) for pattern in patterns)}
    loads = {cell.load for cell in chosen}
    return [cell for cell in listed if cell in chosen or (cell.consumer is RAW and cell.load in loads)]


def events_of(load: Load, *, quick: bool) -> int:
    """Deliveries of one timed run under `load`."""
    if load.kind == "one alone":
        return ALONE >> quick
    fitting = (QUICK_EVENTS if quick else EVENTS)[load.in_flight]
    return fitting if load.body <= 1 << 10 else fitting // 4


def estimate(cells: Sequence[Cell], rounds: int, *, quick: bool) -> float:
    """Seconds that a run is likely to take on a machine with two cores."""
    seconds = sum(
        (rounds + 1) * _BESIDE + rounds * events_of(cell.load, quick=quick) / _rate_of(cell) for cell in cells
    )
    return seconds + _SERVERS


def _rate_of(cell: Cell) -> float:
    is_shared = cell.consumer.batch > 1 and cell.load.kind != "one alone"
    return _RATE_IN_BATCHES if is_shared else _RATES[cell.load.in_flight]
