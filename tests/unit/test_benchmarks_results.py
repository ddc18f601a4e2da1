"""How runs become figures, and when they do not."""

import json

import pytest

from benchmarks.catalog import CONSUMERS, NODE, RAW, Cell, Consumer, Load
from benchmarks.measure import Timing, WireCount
from benchmarks.results import Runs, ratio_of, rows, why_void

(CONNECTION,) = (consumer for consumer in CONSUMERS if consumer.id == "inbox-connection")
HONEST = WireCount(3.0, 3.0, 1.0)


def timing(rate: float, p50_ms: float = 4.0) -> Timing:
    return Timing(1000, 1000 / rate, p50_ms, 3 * p50_ms, 500.0, 40.0)


def runs(consumer: Consumer, rates: list[float], load: Load | None = None, wire: WireCount = HONEST) -> Runs:
    return Runs(Cell(consumer, load or Load()), wire, {number: timing(rate) for number, rate in enumerate(rates, 1)})


def test_a_ratio_is_taken_within_each_round() -> None:
    """The machine was half as fast in the second round: that is nobody's merit."""
    ratio = ratio_of(runs(CONNECTION, [1300, 600, 1200]), runs(RAW, [1000, 500, 1000]))
    assert ratio is not None
    assert [ratio.median, ratio.low, ratio.high] == pytest.approx([1.2, 1.2, 1.3])


def test_a_round_that_only_one_of_them_ran_does_not_count() -> None:
    raw = runs(RAW, [1000, 1000])
    del raw.timings[1]
    ratio = ratio_of(runs(CONNECTION, [9000, 1100]), raw)
    assert ratio is not None
    assert ratio.median == pytest.approx(1.1)


def test_alone_the_ratio_is_of_latencies() -> None:
    alone = Load("one alone", 1)
    inbox, raw = runs(CONNECTION, [100], alone), runs(RAW, [100], alone)
    inbox.timings[1], raw.timings[1] = timing(50, p50_ms=2.0), timing(100, p50_ms=3.0)
    ratio = ratio_of(inbox, raw)
    assert ratio is not None
    assert ratio.median == pytest.approx(1.5)


def test_a_row_has_what_was_asked_for() -> None:
    raw, inbox = rows([runs(RAW, [1000, 900, 1100]), runs(CONNECTION, [1200, 1300, 1100])], {"newest": "MySQL 9.7.4"})
    assert raw["ratio_to_raw"] == 1
    assert inbox["msg_per_s"] == 1200
    assert inbox["ratio_to_raw"] == 1.2
    assert (inbox["ratio_low"], inbox["ratio_high"]) == (1.0, pytest.approx(1.444, abs=0.001))
    wanted = {
        "consumer": "inbox",
        "mode": "per-event",
        "driver": "aiomysql",
        "loop": "asyncio",
        "handler": "connection",
        "in_flight": 8,
        "workload": "all-new",
        "p50_ms": 4.0,
        "p99_ms": 12.0,
        "cpu_us_per_msg": 500.0,
        "db_commands_per_msg": 3.0,
        "rounds": 3,
        "database": "MySQL 9.7.4",
    }
    assert wanted.items() <= inbox.items()
    assert json.loads(json.dumps([raw, inbox])) == [raw, inbox]


def test_what_servers_of_others_used_is_not_known() -> None:
    (row,) = rows([runs(RAW, [1000])], {})
    assert row["database_cpu_us_per_msg"] is None
    assert row["db_questions_per_msg"] is None


def test_whoever_is_wrong_has_no_figures_and_voids_the_run() -> None:
    wrong = runs(CONNECTION, [99_000])
    wrong.wrong = "1,000 effects instead of 999"
    measured = [runs(RAW, [1000]), wrong]
    row = rows(measured, {})[1]
    assert [row[name] for name in ("msg_per_s", "ratio_to_raw", "p50_ms", "db_commands_per_msg")] == [None] * 4
    assert row["wrong"] == "1,000 effects instead of 999"
    assert why_void(measured) == ["inbox-connection, all-new, 8 in flight: 1,000 effects instead of 999"]


def test_without_raw_there_are_figures_and_no_ratio() -> None:
    (row,) = rows([runs(CONNECTION, [1000])], {})
    assert (row["msg_per_s"], row["ratio_to_raw"]) == (1000, None)


@pytest.mark.parametrize("wire", [WireCount(4.0, 4.0, 1.0), WireCount(3.0, 3.0, 0.5), WireCount(2.98, 3.0, 1.0)])
def test_a_raw_that_does_more_or_less_is_no_measure(wire: WireCount) -> None:
    (reason,) = why_void([runs(RAW, [1000], wire=wire), runs(CONNECTION, [1000])])
    assert "not 3 and 1" in reason


def test_what_raw_takes_for_duplicates_is_not_asked() -> None:
    assert why_void([runs(RAW, [1000], Load("all-duplicates"), WireCount(2.0, 2.0, 1.0))]) == []


def test_a_raw_that_is_slower_than_node_is_no_measure() -> None:
    (reason,) = why_void([runs(RAW, [880]), runs(NODE, [1000])])
    assert "raw reaches 0.88 of Node" in reason
    assert why_void([runs(RAW, [900]), runs(NODE, [1000])]) == []


@pytest.mark.parametrize("load", [Load(in_flight=32), Load("all-duplicates"), Load(body=64 << 10)])
def test_node_is_asked_at_eight_in_flight_only(load: Load) -> None:
    assert why_void([runs(RAW, [100], load, HONEST), runs(NODE, [1000], load, HONEST)]) == []


def test_node_is_asked_on_each_database() -> None:
    oldest = Load(pair="oldest")
    (reason,) = why_void([runs(RAW, [1000]), runs(NODE, [1000]), runs(RAW, [500], oldest), runs(NODE, [1000], oldest)])
    assert reason.startswith("all-new, MariaDB, 8 in flight")
