"""`inbox prune` where no server is needed."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from inbox.app import Inbox
from inbox.cli.main import app
from inbox.cli.options import ATTENTION, OK, UNUSABLE
from inbox.cli.prune import seconds_of
from inbox.config import ConsumerSettings
from inbox.core.policy import RetryPolicy
from inbox.core.records import InboxRecord
from inbox.errors import ConfigurationError
from inbox.testing.memory import MemoryStore
from inbox.testing.memory.figures import now
from tests.unit.test_cli_schema import Ended

Run = Callable[..., Ended]

DAY = 86_400.0
HERE = "tests.unit.test_retention_cli"
URL = "mysql://app:hunter2@127.0.0.1:1/app"


def aged(settings: ConsumerSettings | None = None, *, is_cleaning: bool = False, old: int = 7) -> Inbox:
    """An Inbox in memory with old events, one of which is kept, and a young one."""
    store = MemoryStore()
    store.database.is_cleaning = is_cleaning
    inbox = Inbox("billing", store=store, settings=settings)
    for number in range(old):
        key = b"old-%d" % number
        store.rows[key] = InboxRecord("billing", key)
        store.tables.times["inbox", key] = now() - timedelta(days=100)
    store.rows[b"young"] = InboxRecord("billing", b"young")
    store.tables.times["inbox", b"young"] = now()
    return inbox


def busy() -> Inbox:
    return aged(is_cleaning=True)


def empty() -> Inbox:
    return aged(old=0)


def slow() -> Inbox:
    return aged(ConsumerSettings(retry=RetryPolicy(delays=(10 * DAY,), max_attempts=3, jitter=0)))


def quick() -> Inbox:
    return aged(
        ConsumerSettings(deadline=1, retry=RetryPolicy(delays=(1.0,), max_attempts=2, max_releases=0, jitter=0))
    )


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str, consumer: str = "", url: str = "") -> Ended:
        monkeypatch.setenv("INBOX_DATABASE_URL", url)
        monkeypatch.setenv("INBOX_CONSUMER", consumer)
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stopped:
            app(["prune", *arguments])
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 30 * DAY), ("4w", 28 * DAY), (" 1d ", DAY), ("007s", 7)],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of("--older-than", text) == seconds


@pytest.mark.parametrize(
    "text", ["", "30", "d", "0d", "-1d", "1.5d", "30 d", "30D", "30d12h", "P30D", "1y", "٣d", "1e3s", "9" * 11 + "s"]
)
def test_what_is_no_duration_is_said_with_examples(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--older-than .*such as 90s, 15m, 12h, 30d or 4w"):
        seconds_of("--older-than", text)


def test_what_was_deleted_is_said(run: Run) -> None:
    ended = run(f"{HERE}:aged", "--older-than", "30d", "--batch", "2")
    assert ended.exit_code == OK
    assert ended.stdout == "billing: deleted 7 rows (7 inbox, 0 attempts, 0 quarantine, 0 workers).\n"
    assert ended.stderr == ""


def test_a_dry_run_says_what_would_be(run: Run) -> None:
    ended = run(f"{HERE}:aged", "--older-than", "30d", "--dry-run")
    assert ended.stdout == "billing: would delete 7 rows (7 inbox, 0 attempts, 0 quarantine, 0 workers).\n"


def test_nothing_to_delete_is_no_failure(run: Run) -> None:
    ended = run(f"{HERE}:empty", "--older-than", "30d")
    assert (ended.exit_code, "deleted 0 rows" in ended.stdout) == (OK, True)


def test_programs_are_told_the_same(run: Run) -> None:
    ended = run(f"{HERE}:aged", "--older-than", "30d", "--json")
    assert ended.exit_code == OK
    assert json.loads(ended.stdout) == {
        "complete": True,
        "dry_run": False,
        "consumers": {
            "billing": {
                "inbox": 7,
                "attempts": 0,
                "quarantine": 0,
                "workers": 0,
                "kept": 0,
                "is_skipped": False,
                "is_complete": True,
            }
        },
    }


def test_another_clean_up_at_work_is_said(run: Run) -> None:
    ended = run(f"{HERE}:busy", "--older-than", "30d")
    assert ended.exit_code == ATTENTION
    assert ended.stdout == "billing: another clean-up of these tables is at work; nothing was done.\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([f"{HERE}:slow", "--older-than", "30d"], "an event may be under way here for 2592690 s"),
        ([f"{HERE}:slow", "--older-than", "30d", "--retry-horizon", "1d"], "2592690 s"),
        ([f"{HERE}:quick", "--older-than", "1h", "--retry-horizon", "2h"], "7200 s"),
        ([f"{HERE}:quick", "--older-than", "3s"], "4 s"),
        (["--consumer", "billing", "--older-than", "23h"], "86400 s"),
        (["--consumer", "billing", "--older-than", "29d", "--retry-horizon", "30d"], "2592000 s"),
        (["--all-consumers", "--older-than", "1h"], "86400 s"),
    ],
)
def test_a_window_that_is_too_short_is_refused_with_the_number_and_what_to_do(
    run: Run, words: list[str], says: str
) -> None:
    ended = run(*words, url=URL)
    assert ended.exit_code == UNUSABLE
    assert ended.stderr.startswith("inbox prune: --older-than: ")
    assert says in ended.stderr
    assert "lengthen it, or" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        [f"{HERE}:slow", "--older-than", "31d"],
        [f"{HERE}:quick", "--older-than", "5s"],
        [f"{HERE}:quick", "--older-than", "5s", "--retry-horizon", "5s"],
    ],
)
def test_the_settings_of_the_target_say_how_short_a_window_may_be(run: Run, words: list[str]) -> None:
    assert run(*words).exit_code == OK


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--older-than", "30d"], "say where"),
        (["--older-than", "30d", "--database", URL], "say whose"),
        (["--older-than", "soon", "--all-consumers"], "--older-than soon: write a number"),
        (["--older-than", "30d", "--all-consumers", "--retry-horizon", "1"], "--retry-horizon 1: write a number"),
        (["--older-than", "30d", "--all-consumers", "--database", URL, "--consumer", "b"], "write one of them"),
        ([f"{HERE}:aged", "--older-than", "30d", "--all-consumers"], "write one of them"),
        ([f"{HERE}:aged", "--older-than", "30d", "--database", URL], "write the target or the options"),
        ([f"{HERE}:nothing", "--older-than", "30d"], "has no 'nothing'"),
        (
            ["--older-than", "30d", "--all-consumers", "--database", URL],
            "cannot connect to the database at 127.0.0.1:1",
        ),
        (["--older-than", "1h", "--consumer", "b", "--database", URL, "--retry-horizon", "1h"], "cannot connect"),
        ([], "--older-than"),
        (["--older-than", "30d", "--batch", "1000"], "--batch"),
        (["--older-than", "30d", "--pause", "-1"], "--pause"),
    ],
)
def test_wrong_words_and_no_connection_change_nothing(run: Run, words: list[str], says: str) -> None:
    ended = run(*words)
    assert ended.exit_code == UNUSABLE
    assert says in ended.stderr
    assert "hunter2" not in ended.output
    assert "Traceback" not in ended.output


def test_the_help_teaches(run: Run) -> None:
    ended = run("--help")
    assert ended.exit_code == OK
    for piece in ("@daily cd /srv/billing && inbox prune billing.app:inbox --older-than 30d", "Exit codes: 0 done"):
        assert piece in " ".join(ended.stdout.split())
