"""The demo's script, its kills, and its judgement."""

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inbox.cli.main import app
from inbox.cli.options import UNUSABLE
from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery
from inbox.core.event import strict_json
from inbox.demo import services
from inbox.demo.board import AFTER_COMMIT, BLOWS, OUTSIDE, Board, Tally, plan_blows
from inbox.demo.crew import Death
from inbox.demo.director import DemoSettings, Result
from inbox.demo.judge import Found, judge, rows_of
from inbox.demo.script import ACCOUNTS, Effect, Expected, Refusal, Sending, make_script
from inbox.errors import ConfigurationError
from tests.unit.test_cli_schema import Ended

Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("INBOX_DEMO_DATABASE_URL", "INBOX_DEMO_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as stopped:
            app(["demo", *arguments])
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


def drawn(seed: int = 1) -> random.Random:
    return random.Random(seed)  # noqa: S311 - test data


def played(script: list[Sending]) -> Expected:
    expected = Expected()
    expected.add(script)
    return expected


def fulfilled(expected: Expected) -> Found:
    """A database in which everything is as it must be."""
    return Found(
        lines={event: [(due.account, due.kind, due.cents)] for event, due in expected.effects.items()},
        balances=expected.balances,
        claimed=set(expected.effects),
        refusals={event: {due.reason} for event, due in expected.refusals.items()},
    )


# ------------------------------------------------------------------ the script
def test_a_script_has_every_kind_of_event_and_a_share_of_them_twice() -> None:
    script = make_script(1000, 0.25, 3, "jobs")
    expected = played(script)
    assert (expected.events, expected.deliveries, expected.duplicates) == (1000, 1250, 250)
    assert max(Counter(sending.job.event_id for sending in script).values()) == 2
    assert Counter(due.kind for due in expected.effects.values()) == {"completed": 894, "failed": 100}
    assert Counter(due.reason for due in expected.refusals.values()) == {"rejected": 4, "no-handler": 2}
    assert expected.cents == sum(expected.balances.values()) > 0
    assert expected.balances.keys() <= set(ACCOUNTS)
    first = [sending.job.event_id for sending in script[:50]]
    assert first != sorted(first), "shuffled"


def test_the_seed_decides_everything() -> None:
    assert make_script(50, 0.5, 3, "jobs") == make_script(50, 0.5, 3, "jobs")
    assert make_script(50, 0.5, 3, "jobs") != make_script(50, 0.5, 4, "jobs")


def test_few_events_are_all_to_be_applied() -> None:
    expected = played(make_script(1, 1.0, 1, "jobs"))
    assert (expected.deliveries, len(expected.effects), expected.refusals) == (2, 1, {})


def test_an_event_names_the_amount_and_the_account_that_are_expected() -> None:
    for sending in make_script(40, 0.0, 1, "jobs"):
        encoded = sending.encoded()
        event = decode(Delivery(encoded.body, dict(encoded.headers), encoded.content_type))
        assert event.id == sending.job.event_id
        body = strict_json(encoded.body)
        if isinstance(sending.due, Effect):
            cents = body["metadata"]["amountCents"] if sending.due.kind == "completed" else 0
            assert (event.extensions["tenantid"], body["status"], cents) == (
                sending.due.account,
                sending.due.kind,
                sending.due.cents,
            )
        else:
            is_unknown = event.type.startswith("studio.lerian.fetcher.")
            assert sending.due == Refusal("no-handler" if is_unknown else "rejected")


# ------------------------------------------------------------------ the kills
@pytest.mark.parametrize("count", range(60))
def test_most_kills_meet_the_window_and_none_waits_for_what_has_not_come_again(count: int) -> None:
    blows = plan_blows(count, drawn(count))
    assert len(blows) == count
    window = [blow for blow in blows if blow.where.startswith("between COMMIT and acknowledgement")]
    assert len(window) * 2 > count or count == 0
    assert not (blows and blows[0].of_redelivered)
    assert blows.count(OUTSIDE) == min(2, count // 5)


def test_twenty_kills_meet_every_point_there_is() -> None:
    assert set(plan_blows(20, drawn())) == {OUTSIDE, *BLOWS}


def test_a_board_adds_up_what_its_workers_count() -> None:
    board = Board(2)
    for place, times in ((0, 3), (1, 4)):
        for _ in range(times):
            board.count(place, Tally.APPLIED)
    assert (board.total(Tally.APPLIED), board.total(Tally.SETTLED)) == (7, 0)
    assert board.wanted is None
    assert board.fallen(0) is None
    board.order(BLOWS[2])
    board.change(AFTER_COMMIT)
    assert board.wanted is AFTER_COMMIT


# ------------------------------------------------------------------ the judgement
def test_what_is_as_published_is_all_right() -> None:
    expected = played(make_script(200, 0.3, 1, "jobs"))
    found = fulfilled(expected)
    verdict = judge(expected, found)
    assert verdict.is_good
    assert (verdict.lost, verdict.double) == (0, 0)
    assert all(due == seen for _, due, seen in rows_of(expected, found, verdict))


EFFECT, OTHER, REFUSED = "effect", "other", "refused"


def small() -> tuple[Expected, Found]:
    expected = Expected(
        deliveries=3,
        effects={EFFECT: Effect("a", "completed", 5), OTHER: Effect("b", "failed", 0)},
        refusals={REFUSED: Refusal("rejected")},
    )
    return expected, fulfilled(expected)


def lose(found: Found) -> None:
    del found.lines[OTHER]
    found.claimed.remove(OTHER)


def lose_refusal(found: Found) -> None:
    found.refusals.clear()


def double(found: Found) -> None:
    found.lines[OTHER] *= 3


def invent(found: Found) -> None:
    found.lines["nobody's"] = [("a", "failed", 0)]
    found.claimed.add("nobody's")


def apply_refused(found: Found) -> None:
    found.lines[REFUSED] = [("a", "failed", 0)]
    found.claimed.add(REFUSED)


def falsify(found: Found) -> None:
    found.lines[EFFECT] = [("a", "completed", 6)]


def misbook(found: Found) -> None:
    found.balances = Counter({"b": 5})


def put_away(found: Found) -> None:
    found.refusals[EFFECT] = {"crashed"}


def give_other_reason(found: Found) -> None:
    found.refusals[REFUSED] = {"rejected", "crashed"}


def forget_row(found: Found) -> None:
    found.claimed.remove(EFFECT)


def leave_over(found: Found) -> None:
    found.left = 2


@pytest.mark.parametrize(
    ("breaks", "words", "lost", "doubled"),
    [
        (lose, "1 of 3 events lost", 1, 0),
        (lose_refusal, "1 of 3 events lost", 1, 0),
        (double, "2 effects doubled", 0, 2),
        (invent, "1 events with an effect that must have none", 0, 0),
        (apply_refused, "1 events with an effect that must have none", 0, 0),
        (falsify, "1 effects that are other than their events say", 0, 0),
        (misbook, "2 accounts with another sum than they were credited", 0, 0),
        (put_away, "1 events wrongly in quarantine", 0, 0),
        (give_other_reason, "1 events wrongly in quarantine", 0, 0),
        (forget_row, "1 events with an effect and no inbox row", 0, 0),
        (leave_over, "2 deliveries left in the queue", 0, 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_difference_is_seen(breaks: Callable[[Found], None], words: str, lost: int, doubled: int) -> None:
    expected, found = small()
    breaks(found)
    verdict = judge(expected, found)
    assert any(difference.startswith(words) for difference in verdict.differences), verdict.differences
    assert (verdict.is_good, verdict.lost, verdict.double) == (False, lost, doubled)


def result(kills: int, unasked: int) -> Result:
    expected, found = small()
    death = Death(0, 1, None, 1)
    return Result(
        DemoSettings(events=30, kills=2),
        expected,
        found,
        judge(expected, found),
        (death,) * kills,
        (death,) * unasked,
        Counter(),
        1.23456,
    )


def test_kills_that_did_not_take_place_and_deaths_that_nobody_wanted_are_told() -> None:
    assert result(2, 0).complaints == []
    assert result(1, 0).complaints == ["only 1 of 2 kills took place"]
    assert result(2, 2).complaints == ["2 workers ended by themselves (exit codes 1, 1)"]


def test_the_numbers_for_programs() -> None:
    assert result(2, 0).as_dict() == {
        "events": 3,
        "deliveries": 3,
        "duplicates": 0,
        "kills": 2,
        "effects": 2,
        "lost": 0,
        "double": 0,
        "quarantined": 1,
        "sum_expected": 5,
        "sum_found": 5,
        "seconds": 1.235,
    }


# ------------------------------------------------------------------ what it refuses
@pytest.mark.parametrize(
    "words",
    [
        ("--events", "0"),
        ("--events", "many"),
        ("--duplicates", "1.5"),
        ("--duplicates", "-0.1"),
        ("--workers", "0"),
        ("--workers", "17"),
        ("--kills", "-1"),
        ("--seed", "x"),
        ("--no-such-thing",),
    ],
)
def test_options_out_of_their_bounds_are_refused(run: Run, words: tuple[str, ...]) -> None:
    ended = run(*words)
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--events", "59"), "20 kills need at least 60 events: each has to meet some under way"),
        (("--database", "mysql://u:hunter2@h/d"), "--broker is missing"),
        (("--broker", "amqp://u:hunter2@h/"), "--database is missing"),
        (("--services", "--broker", "amqp://u:hunter2@h/"), "--services beside --database or --broker"),
        (("--database", "postgresql://u:hunter2@h/d", "--broker", "amqp://h/"), "the database URL is for postgresql"),
        (("--database", "mysql://u:hunter2@h/d", "--broker", "http://h/"), "the broker's address must start with"),
    ],
)
def test_what_contradicts_itself_is_told_in_a_line(run: Run, words: tuple[str, ...], told: str) -> None:
    ended = run(*words)
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")
    assert ended.stderr.splitlines()[-1].startswith(f"inbox demo: {told}")
    assert "hunter2" not in ended.stderr


def test_without_the_extra_it_says_which(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("inbox.adapters.embedded")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "inbox.demo.embedded", raising=False)
    monkeypatch.setitem(sys.modules, "aiosqlite", None)
    ended = run()
    assert ended.exit_code == UNUSABLE
    assert ended.stderr.splitlines()[-1] == (
        "inbox demo: without --database and --broker it needs aiosqlite: pip install 'idempotent-inbox[cli,embedded]'"
    )


def test_outside_of_a_checkout_there_are_no_private_servers(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(services, "_ROOT", tmp_path)
    ended = run("--services")
    assert ended.exit_code == UNUSABLE
    assert "inbox demo: --services needs a checkout of the source" in ended.stderr


@pytest.mark.parametrize(
    "given", [{"events": 0}, {"workers": 0}, {"kills": -1}, {"duplicates": 1.1}, {"events": 10, "kills": 4}]
)
def test_settings_are_checked_when_they_are_made(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        DemoSettings(**given)
