"""What the commands share: where they work, how they end, how they are interrupted."""

import asyncio
import gc
import os
import signal

import pytest
import typer
from aiormq.exceptions import AMQPError

from inbox.app import Inbox
from inbox.cli.option_groups import grouped
from inbox.cli.options import (
    INTERRUPTED,
    UNUSABLE,
    Place,
    TargetArgument,
    Where,
    choose_place,
    explained,
    explaining,
    interruptible,
    open_store,
    printable,
    progress,
    run,
)
from inbox.config import DatabaseSettings
from inbox.errors import ConfigurationError, SchemaError
from inbox.testing.memory import MemoryStore
from tests.unit.test_cli_schema import Ended

URL = "mysql://u:hunter2@db/shop"

memory = MemoryStore()
inbox = Inbox("billing", store=memory)


class Chosen:
    """A command that chooses a place and keeps it."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *, needs_consumer: bool = True) -> None:
        self.place: Place | None = None
        self._capsys = capsys
        self._app = typer.Typer(add_completion=False)

        @self._app.command()
        @grouped
        def choose(context: typer.Context, *, target: TargetArgument = None, where: Where) -> None:
            with explaining("choose"):
                self.place = choose_place(context, target, where, needs_consumer=needs_consumer)

    def __call__(self, *words: str) -> Ended:
        with pytest.raises(SystemExit) as stopped:
            self._app(list(words))
        captured = self._capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)


@pytest.fixture
def choose(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Chosen:
    monkeypatch.delenv("INBOX_DATABASE_URL", raising=False)
    monkeypatch.delenv("INBOX_CONSUMER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Chosen(capsys)


# ------------------------------------------------------------------ groups
def test_an_option_that_a_group_and_the_command_have_is_a_mistake_of_the_program() -> None:
    def command(*, where: Where, database: str = "") -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'database'"):
        grouped(command)


# ------------------------------------------------------------------ where
def test_a_target_stands_for_everything(choose: Chosen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_DATABASE_URL", URL)  # gives way
    monkeypatch.setenv("INBOX_CONSUMER", "other")
    assert choose(f"{__name__}:inbox").exit_code == 0
    assert choose.place is not None
    assert (choose.place.inbox, choose.place.consumer) == (inbox, "billing")
    assert choose.place.store() is memory


@pytest.mark.parametrize("words", [("--database", URL), ("--consumer", "c"), ("--no-view",), ("--table", "inbox=x")])
def test_options_beside_a_target_contradict_it(choose: Chosen, words: tuple[str, ...]) -> None:
    ended = choose(f"{__name__}:inbox", *words)
    assert ended.exit_code == UNUSABLE
    assert ended.stderr.startswith(f"inbox choose: {words[0]} beside")
    assert "hunter2" not in ended.output


def test_options_say_where_and_whose(choose: Chosen) -> None:
    assert choose("--database", URL, "--consumer", "é", "--table", "inbox=seen", "--no-view").exit_code == 0
    assert choose.place is not None
    assert choose.place.store().describe()["database"] == "db:3306/shop"
    assert choose.place.consumer == "é"
    assert "hunter2" not in repr(choose.place)


def test_the_environment_says_where_whose_and_how(choose: Chosen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_DATABASE_URL", URL)
    monkeypatch.setenv("INBOX_CONSUMER", "mail")
    monkeypatch.setenv("INBOX_DATABASE_TLS", "true")
    assert choose().exit_code == 0
    assert choose.place is not None
    assert choose.place.consumer == "mail"
    assert choose.place.database is not None
    assert choose.place.database.settings == DatabaseSettings(tls=True)
    assert choose(f"{__name__}:inbox").exit_code == 0, "and gives way to a target"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "say where: a target such as billing.app:inbox, or --database URL"),
        (("--database", URL), "say whose: --consumer NAME"),
        (("--database", URL, "--consumer", "x" * 129), "129 octets"),
        (("--database", URL, "--consumer", "c", "--table", "inbox"), "write KIND=NAME"),
        (("--database", "postgresql://u@h/d", "--consumer", "c"), "mysql://user:password"),
        (("nowhere:inbox",), "no module 'nowhere'"),
        (("inbox",), "write module:attribute"),
        ((f"{__name__}:URL",), "not an Inbox"),
    ],
)
def test_what_is_missing_or_wrong_is_one_line(choose: Chosen, words: tuple[str, ...], says: str) -> None:
    ended = choose(*words)
    assert ended.exit_code == UNUSABLE
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_command_for_all_consumers_needs_none(capsys: pytest.CaptureFixture[str], choose: Chosen) -> None:
    choose = Chosen(capsys, needs_consumer=False)
    assert choose("--database", URL).exit_code == 0
    assert choose.place is not None
    assert choose.place.consumer is None
    assert choose.place.store() is not None


async def test_a_store_is_closed_however_the_block_ends() -> None:
    place = Place(inbox, None, "billing")
    async with open_store(place) as store:
        assert store is memory
        assert memory.is_open
    assert not memory.is_open
    memory.faults["open"] = [SchemaError(["no table"])]
    with pytest.raises(SchemaError):
        async with open_store(place):
            pass
    assert not memory.is_open


# ------------------------------------------------------------------ how it ends
@pytest.mark.parametrize(
    ("error", "says", "code"),
    [
        (ConfigurationError("wrong"), "inbox x: wrong\n", UNUSABLE),
        (SchemaError(["one", "two"]), "inbox x: one\ninbox x: two\n", UNUSABLE),
        (OSError("secret"), "the database: the database refused", UNUSABLE),
        (FileNotFoundError(2, "secret", "a.jsonl"), "inbox x: a.jsonl: No such file", UNUSABLE),
        (KeyboardInterrupt(), "inbox x: interrupted\n", INTERRUPTED),
        (asyncio.CancelledError(), "inbox x: interrupted\n", INTERRUPTED),
    ],
)
def test_what_goes_wrong_is_a_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, says: str, code: int
) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        run("x", work)
    assert ended.value.exit_code == code
    told = capsys.readouterr().err
    assert says in told
    assert "secret" not in told


def test_a_reader_that_has_gone_is_no_error_of_the_database() -> None:
    with pytest.raises(BrokenPipeError), explaining("x"):
        raise BrokenPipeError


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), explaining("x"):
        raise ZeroDivisionError


def test_an_error_of_the_system_names_its_file_only() -> None:
    assert explained(PermissionError(13, "secret", "a")) == f"a: {os.strerror(13)}"


@pytest.mark.parametrize(
    ("error", "is_told"), [(ZeroDivisionError(), True), (ConnectionResetError(), False), (AMQPError(), False)]
)
def test_what_the_client_library_leaves_behind_is_left_out(
    caplog: pytest.LogCaptureFixture, error: Exception, is_told: bool
) -> None:
    async def work() -> None:
        asyncio.get_running_loop().create_future().set_exception(error)
        gc.collect()
        await asyncio.sleep(0)

    run("x", work)
    assert ("never retrieved" in caplog.text) is is_told


# ------------------------------------------------------------------ being interrupted
async def test_the_first_signal_asks_and_what_was_before_is_there_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as interruption:
        assert not await interruption.wait(0.001)
        assert not interruption.is_asked
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            assert await interruption.wait()
        assert interruption.is_asked
    assert signal.getsignal(signal.SIGTERM) == before


async def test_what_is_to_follow_follows_once() -> None:
    called: list[int] = []
    with interruptible() as interruption:
        interruption.then(lambda: called.append(1))
        assert called == []
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await interruption.wait()
        interruption.then(lambda: called.append(2))
        interruption.ask()
    assert called == [1, 2]


def test_the_second_signal_ends_it_where_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        with interruptible() as interruption:
            os.kill(os.getpid(), signal.SIGINT)
            async with asyncio.timeout(5):
                await interruption.wait()
            os.kill(os.getpid(), signal.SIGINT)
            async with asyncio.timeout(5):
                await asyncio.Event().wait()

    with pytest.raises(typer.Exit) as ended:
        run("x", work)
    assert ended.value.exit_code == INTERRUPTED
    assert capsys.readouterr().err == "inbox x: interrupted\n"


# ------------------------------------------------------------------ output
def test_what_would_steer_a_terminal_is_not_printed() -> None:
    assert printable("é \x1b[31mred\x07\u202e") == "é �[31mred��"


def test_elsewhere_than_on_a_terminal_a_line_is_said_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([100.0, 101.0, 107.0, 108.0])
    monkeypatch.setattr("inbox.cli.options.time.monotonic", lambda: next(now))
    with progress("x", "rows deleted", total=5000) as bar:
        for steps in (10, 1200, 1):
            bar.advance(steps)
    assert capsys.readouterr().err == "inbox x: 1,210 of 5,000 rows deleted, 173 a second\n"


@pytest.mark.parametrize(("shown", "is_drawn"), [(True, True), (False, False)])
def test_a_bar_is_drawn_where_it_is_asked_for(capsys: pytest.CaptureFixture[str], shown: bool, is_drawn: bool) -> None:
    with progress("x", "rows deleted", total=2, shown=shown) as bar:
        bar.advance()
        bar.advance(1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("rows deleted" in captured.err) is is_drawn
