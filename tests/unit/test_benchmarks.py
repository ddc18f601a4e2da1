"""What the benchmark would measure, what it sends, and how it shows what came of it."""

import json
import random
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from benchmarks import growth, run
from benchmarks.catalog import CONSUMERS, RAW, Cell, Load, estimate, full_grid, only, quick_grid
from benchmarks.consumers.contract import Job
from benchmarks.consumers.inbox_worker import settings_of
from benchmarks.database import Durability
from benchmarks.disk import Place, place_of
from benchmarks.goals import GOALS, goals_grid, goals_table, judged
from benchmarks.measure import Servers, Timing, WireCount, Wrong
from benchmarks.memory import FIRST_EVENTS_MB, PREFETCH, Case, Course
from benchmarks.memory import markdown as memory_table
from benchmarks.plot import lines, plot
from benchmarks.profile import layer_of
from benchmarks.results import Runs, rows, why_void
from benchmarks.table import table
from benchmarks.workers import Growth, Round, growth_of
from benchmarks.workload import ACCOUNTS, make_batch
from inbox import Batch
from tests.unit.test_benchmarks_results import CONNECTION, runs, timing

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


# ---------------------------------------------------------------- the grid
def test_every_consumer_is_a_program_that_exists() -> None:
    assert len({consumer.id for consumer in CONSUMERS}) == len(CONSUMERS)
    programs = {consumer.program for consumer in CONSUMERS} - {"node"}
    assert [program for program in programs if find_spec(program) is None] == []


@pytest.mark.parametrize("grid", [quick_grid(), full_grid(), goals_grid()], ids=["quick", "full", "goals"])
def test_a_grid_measures_raw_under_each_of_its_loads_once(grid: list[Cell]) -> None:
    assert len(set(grid)) == len(grid)
    assert {cell.load for cell in grid} == {cell.load for cell in grid if cell.consumer == RAW}


def test_the_full_grid_has_every_consumer_and_every_kind_of_load() -> None:
    grid = full_grid()
    assert {cell.consumer for cell in grid} == set(CONSUMERS)
    assert {cell.load.kind for cell in grid} == {"all-new", "10% duplicates", "all-duplicates", "one alone"}
    assert {cell.load.in_flight for cell in grid} == {1, 8, 32, 128}
    assert {cell.load.body for cell in grid} == {512, 65536}
    assert {cell.load.pair for cell in grid} == {"newest", "oldest"}


def test_the_quick_grid_takes_four_minutes() -> None:
    assert estimate(quick_grid(), 3, quick=True) <= 240


def test_batches_are_measured_beside_those_by_hand_on_both_drivers() -> None:
    grid = full_grid()
    in_batches = {cell.consumer for cell in grid if cell.consumer.mode == "batch"}
    assert {(consumer.family, consumer.driver, consumer.loop) for consumer in in_batches} == {
        ("raw", "aiomysql", "asyncio"),
        ("inbox", "aiomysql", "asyncio"),
        ("inbox", "asyncmy", "uvloop"),
    }
    for name in ("inbox-batch-connection", "inbox-batch-handler-asyncmy-uvloop"):
        loads = {(cell.load.kind, cell.load.in_flight) for cell in grid if cell.consumer.id == name}
        assert {("all-new", number) for number in (1, 8, 32, 128)} <= loads
        assert loads >= {(kind, 32) for kind in ("10% duplicates", "all-duplicates")} | {("one alone", 1)}


def test_a_batch_has_two_lanes_and_what_the_runner_puts_in_its_hands() -> None:
    job = Job("mysql://", "amqp://", "q", 32, 400, 9, "aiomysql", "connection", "asyncio", 100, False)
    settings = settings_of(job)
    assert (settings.concurrency, settings.effective_prefetch, settings.batch) == (2, 400, Batch(max=100))
    assert settings_of(replace(job, in_flight=1)).concurrency == 1
    assert replace(settings, prefetch=None).effective_prefetch == 400, "what the runner gives is the default"
    assert settings_of(replace(job, batch=1)).batch is None


def test_what_it_is_judged_by_is_part_of_the_full_grid_and_has_both_consumers_of_each_goal() -> None:
    grid = goals_grid()
    assert {*grid} <= {*full_grid()}
    assert len({*grid}) == len(grid)
    for goal in GOALS:
        assert {goal.who, goal.of} <= {cell.consumer.id for cell in grid if cell.load == goal.load}
    assert run.main(["--goals", "--plan", "--only", "one alone"]) == 0
    with pytest.raises(SystemExit):
        run.read(["--goals", "--quick"])


def test_a_goal_is_judged_by_the_median_of_its_rounds_where_both_were_measured() -> None:
    at_8, alone = Load(), Load("one alone", 1)
    measured = [
        timed("raw", at_8, [100, 100, 100]),
        timed("inbox-connection", at_8, [90, 120, 121]),
        timed("core", at_8, [100, 100, 100]),
        timed("inbox-session", at_8, [110, 110, 110]),
        timed("raw", alone, [1, 1, 1], p50_ms=1.0),
        timed("inbox-session", alone, [1, 1, 1], p50_ms=1.08),
    ]
    found = {(each.goal.who, each.goal.of, each.goal.load): each for each in judged(measured)}
    assert {key: each.is_reached for key, each in found.items()} == {
        ("inbox-connection", "raw", at_8): True,
        ("inbox-session", "raw", at_8): True,
        ("inbox-session", "core", at_8): False,
        ("inbox-session", "raw", alone): True,
    }
    row = found["inbox-connection", "raw", at_8].row()
    assert (row["wanted"], row["ratio"], row["low"], row["high"], row["is_reached"]) == (1.2, 1.2, 0.9, 1.21, True)
    told = goals_table(judged(measured))
    assert "| inbox-session, all-new, 8 in flight | core | 1.25 | 1.10 | 1.10 … 1.10 | missed |" in told
    assert goals_table([]) == ""


def timed(name: str, load: Load, rates: list[float], p50_ms: float = 1.0) -> Runs:
    consumer = next(consumer for consumer in CONSUMERS if consumer.id == name)
    return Runs(
        Cell(consumer, load), timings={number: timing(rate, p50_ms) for number, rate in enumerate(rates, start=1)}
    )


def test_loads_differ_in_name_or_number() -> None:
    """Whoever reads the results by these two must never mix two loads."""
    loads = {cell.load for cell in full_grid()}
    assert len({(load.workload, load.in_flight) for load in loads}) == len(loads)


def test_raw_comes_along_under_the_loads_that_are_chosen() -> None:
    chosen = only(full_grid(), ["^inbox-session, all-new, 8 in"])
    assert [str(cell) for cell in chosen] == ["raw, all-new, 8 in flight", "inbox-session, all-new, 8 in flight"]
    assert only(full_grid(), ["no such"]) == []


def test_a_plan_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--quick", "--plan", "--only", "^core, all-new, 8 in"]) == 0
    out, err = capsys.readouterr()
    assert out == "raw, all-new, 8 in flight\ncore, all-new, 8 in flight\n"
    assert "2 cells, 3 rounds" in err
    assert run.main(["--plan", "--only", "no such"]) == 2


def test_only_a_whole_grid_replaces_what_is_published() -> None:
    assert run.is_whole(run.read(["--quick"]))
    for words in (["--only", "raw"], ["--rounds", "1"], ["--events", "9"], ["--allow-memory"]):
        assert not run.is_whole(run.read(words))


# ---------------------------------------------------------------- the events
def draw(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - test data


def test_all_of_them_are_new() -> None:
    batch = make_batch(Load(), 100, draw(1))
    assert len(batch.ids) == len(batch.deliveries) == batch.effects.total() == 100
    assert {len(event.body) for event in batch.deliveries} == {512}
    assert all(json.loads(event.body)["account"] == event.account < ACCOUNTS for event in batch.deliveries)


def test_a_tenth_of_them_come_again_behind_their_first_place() -> None:
    batch = make_batch(Load("10% duplicates"), 200, draw(1))
    assert (len(batch.deliveries), len(batch.ids), batch.effects.total()) == (200, 180, 180)
    first: dict[str, bytes] = {}
    for event in batch.deliveries:
        assert first.setdefault(event.id, event.body) == event.body


def test_all_of_them_are_known() -> None:
    batch = make_batch(Load("all-duplicates"), 50, draw(1))
    assert batch.known == batch.deliveries
    assert batch.effects == Counter()
    record = batch.known[0].record
    assert record.key == batch.known[0].id.encode()
    assert record.fingerprint is not None


def test_the_same_seed_sends_the_same() -> None:
    load = Load("10% duplicates", body=64 << 10)
    first, second = (make_batch(load, 20, draw(7)) for _ in range(2))
    assert first == second
    assert {len(event.body) for event in first.deliveries} == {65536}


# ---------------------------------------------------------------- what is shown
def wrong() -> Runs:
    found = Runs(Cell(CONSUMERS[-1], Load()))
    found.wrong = "it ended early, with -9"
    return found


def measured() -> list[dict[str, Any]]:
    alone = Load("one alone", 1)
    listed = [runs(RAW, [1000, 900]), runs(CONNECTION, [1300, 1200]), wrong(), runs(RAW, [100], alone)]
    return rows(listed, {"newest": "MySQL <9.7>"})


def test_the_table_says_what_is_known_and_what_does_not_count() -> None:
    shown = table(measured())
    first, second = shown.split("### ")[1:]
    assert first.startswith("all-new, 8 in flight\n")
    assert second.startswith("one alone, 1 in flight\n")
    (line,) = (line for line in first.splitlines() if line.startswith("| inbox-connection"))
    assert [cell.strip() for cell in line.strip("|").split("|")][:4] == [
        "inbox-connection",
        "1,250",
        "1.32",
        "1.30 … 1.33",
    ]
    assert f"{CONSUMERS[-1].id} does not count: it ended early, with -9" in first
    assert "database CPU" not in shown
    widths = {len(line) for line in first.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_the_plot_is_a_picture_in_light_and_dark() -> None:
    picture = plot(measured(), "MySQL <9.7> & others")
    tree = ET.fromstring(picture)  # noqa: S314 - a text of ours
    words = [element.text for element in tree.iter(f"{SVG}text")]
    assert "MySQL <9.7> & others" in words
    assert "1.32 · 1,250/s" in words
    assert "1.00 · 4.0 ms" in words
    assert CONSUMERS[-1].id not in words
    bars = {element.get("class"): float(element.get("width", "0")) for element in tree.iter(f"{SVG}rect")}
    assert bars["inbox"] / bars["raw"] == pytest.approx(1.32, abs=0.01)
    assert "prefers-color-scheme: dark" in picture
    right = [float(element.get("x", "0")) + 7 * len(element.text or "") for element in tree.iter(f"{SVG}text")]
    assert max(right) <= 860


def test_a_course_is_drawn_from_left_to_right_beside_its_bound() -> None:
    tree = ET.fromstring(lines([("small & quick", [(0.0, 70.0), (5.0, 80.0), (10.0, 75.0)], 90.0)], "Resident MiB"))  # noqa: S314 - ours
    (course,) = tree.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in (course.get("points") or "").split()]
    (bound,) = tree.iter(f"{SVG}line")
    assert [left for left, _ in points] == sorted(left for left, _ in points)
    assert points[1][1] < points[2][1] < points[0][1], "more is higher up"
    assert float(bound.get("y1", "0")) < points[1][1], "what was seen is below the bound"
    assert {"small & quick", "90", "10 s"} <= {element.text for element in tree.iter(f"{SVG}text")}


def test_a_worker_may_hold_its_prefetch_twice_and_is_judged_by_its_peak() -> None:
    course = Course(Case(10, 2**20, slow=False), 70.0, samples=[(0.0, 71.0), (1.0, 90.0), (2.0, 80.0), (3.0, 82.0)])
    assert course.bound_mb == 70 + FIRST_EVENTS_MB + 2 * PREFETCH
    assert (course.peak_mb, course.growth_mb) == (90.0, 2.0)
    assert "| 90.0 | 334.0 | 2.0 |" in memory_table([course])


def test_growth_is_measured_for_every_layout_and_kind_of_id_unless_some_are_named() -> None:
    options = growth.read([])
    assert (options.rows, options.layouts, options.ids) == (
        [10_000, 100_000, 1_000_000, 10_000_000],
        ["clustered", "surrogate"],
        ["random", "ordered"],
    )
    assert growth.read(["--rows", "500,20", "--ids", "ordered"]).rows == [20, 500]
    cost = growth.Cost("clustered", "random", 20, "new", 900.0, 1500.0, 0.5, 1.25, 1600.0, 4.0)
    assert growth.markdown([cost]).splitlines()[-1] == (
        "| clustered | random | 20 | 4.0 | new | 900 | 1,500 | 0.5 | 1.25 | 1,600 |"
    )


def test_workers_are_compared_within_a_round() -> None:
    """The machine was half as quick in the second one."""
    rounds = [
        {1: Round(1000, 600, (400, None)), 2: Round(1500, 650, (420, None))},
        {1: Round(500, 610, (410, None)), 2: Round(750, 655, (430, None))},
    ]
    assert growth_of(2, rounds, 1) == Growth(2, 1125, 1.5, 652.5, 425, None)


def test_a_plot_of_nothing_is_one() -> None:
    ET.fromstring(plot([], "nothing"))  # noqa: S314 - a text of ours


# ---------------------------------------------------------------- what it runs on
def test_where_data_lies_is_told(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    assert place.folder == str(tmp_path)
    assert place.filesystem != "unknown"
    assert place.sync_us is not None
    assert place_of(tmp_path / "none").folder is None


def test_memory_is_no_disk() -> None:
    assert Place("/dev/shm", "tmpfs").is_in_memory  # noqa: S108 - nothing is put there
    assert not Place("/var/lib/mysql", "ext4").is_in_memory


@pytest.mark.parametrize(
    ("flush", "sync_binlog", "filesystem", "reasons"),
    [
        (1, 1, "ext4", []),
        (2, 1, "ext4", ["MySQL 9.7.4 answers a COMMIT before that is on the disk"]),
        (1, 0, "ext4", ["MySQL 9.7.4 answers a COMMIT before that is on the disk"]),
        (1, 1, "tmpfs", ["MySQL 9.7.4 has its data in memory: give it a disk with --data"]),
    ],
)
def test_less_than_full_durability_voids_the_run(
    monkeypatch: pytest.MonkeyPatch, flush: int, sync_binlog: int, filesystem: str, reasons: list[str]
) -> None:
    monkeypatch.setattr(run, "place_of", lambda folder: Place(str(folder), filesystem, 200.0))
    session = run.Session([], 5, None, "full", draw(1))
    session.look_at_database("newest", Durability("9.7.4-2", flush, sync_binlog, "/data"), memory_is_fine=False)
    assert session.void == reasons
    assert session.data["newest"].items() >= {"folder": "/data", "filesystem": filesystem, "sync_us": 200.0}.items()


async def test_whoever_was_wrong_once_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def count_run(cell: Cell, *_: object) -> WireCount:
        return WireCount(3, 3, 1)

    async def time_run(cell: Cell, *_: object) -> Timing:
        asked.append(cell.consumer.id)
        if cell.consumer != RAW:
            raise Wrong("an effect too many")
        return timing(1000)

    monkeypatch.setattr(run, "count_run", count_run)
    monkeypatch.setattr(run, "time_run", time_run)
    session = run.Session([Cell(RAW, Load()), Cell(CONNECTION, Load())], 3, None, "full", draw(1))
    raw, inbox = await session.measure({"newest": cast("Servers", None)})
    assert sorted(asked) == ["inbox-connection", "raw", "raw", "raw"]
    assert (len(raw.timings), inbox.wrong) == (3, "an effect too many")
    assert why_void([raw, inbox]) == ["inbox-connection, all-new, 8 in flight: an effect too many"]


def test_node_gets_exact_versions_and_no_lock_file() -> None:
    folder = ROOT / "benchmarks/consumers/node"
    versions = json.loads((folder / "package.json").read_text())["dependencies"].values()
    assert all(version.replace(".", "").isdecimal() for version in versions)
    assert sorted(path.name for path in folder.iterdir()) == ["consumer.js", "package.json"]


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("/venv/lib/python3.11/site-packages/sqlalchemy/engine/base.py", "sqlalchemy"),
        (str(ROOT / "inbox/core/event.py"), "inbox/core"),
        ("/usr/lib/python3.11/asyncio/events.py", "asyncio"),
        ("/usr/lib/python3.11/selectors.py", "python"),
        ("~", "built in"),
    ],
)
def test_a_profile_knows_whose_a_function_is(path: str, layer: str) -> None:
    assert layer_of(path) == layer
