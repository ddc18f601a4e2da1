"""The log for programs: its words and fields are those that are written down, and no line gives anything away."""

import ast
import io
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inbox.cli.logs import JsonFormatter, LogFormat, LogLevel, configure_logging
from inbox.core.disposition import Failure, FailureKind
from inbox.core.event import Event
from inbox.core.facts import fact
from inbox.core.lifecycle import Command, Outcome
from inbox.errors import Reject, Retry
from inbox.runtime import telemetry
from inbox.runtime.telemetry import Telemetry
from tests.architecture.modules import Module, modules
from tests.unit.engine import Engine, apply, delivery

DOCUMENT = Path(__file__).parents[2] / "docs/logging.md"
ENVELOPE = {"time", "level", "logger", "pid", "message", "what"}
SECRET = "hunter2"


# ---------------------------------------------------------------- the words
@dataclass(frozen=True)
class Fact:
    """One kind of line: its word, its level, and its fields."""

    what: str
    level: str
    fields: frozenset[str]


def documented() -> list[Fact]:
    section = DOCUMENT.read_text("utf-8").partition("## The facts")[2]
    rows = re.findall(rf"^\| `([a-z-]+)` \| ({'|'.join(LogLevel)}) \|([^|]*)\|", section, re.MULTILINE)
    return [Fact(what, level, frozenset(re.findall(r"`(\w+)`", fields))) for what, level, fields in rows]


def logged(module: Module) -> Iterator[ast.Call]:
    """The calls by which a module writes lines."""
    methods = "|".join([*LogLevel, "critical", "exception", "log", "warn"])
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and re.fullmatch(rf"_?log(ger)?\.({methods})", ast.unparse(node.func)):
            yield node


def fact_of(call: ast.Call, module: Module) -> Fact | None:
    """What a call states; None where only running it can tell."""
    place = f"{module.name}:{call.lineno}"
    extra = next((keyword.value for keyword in call.keywords if keyword.arg == "extra"), None)
    assert extra is not None, f"{place}: give it extra=fact(…), and its row in {DOCUMENT.name}"
    if isinstance(extra, ast.Name):  # written above the call, so that both fit their lines
        stated = [
            node.value
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Assign) and node.lineno < call.lineno and ast.unparse(node.targets[0]) == extra.id
        ]
        extra = max(stated, key=lambda value: value.lineno)
    assert isinstance(extra, ast.Call), place
    assert ast.unparse(extra.func) == "fact", place
    if module.name == telemetry.__name__:
        return None
    (word,) = extra.args
    assert isinstance(word, ast.Constant), place
    assert isinstance(call.func, ast.Attribute)
    return Fact(str(word.value), call.func.attr, frozenset(str(keyword.arg) for keyword in extra.keywords))


def test_every_line_states_a_fact_that_is_written_down() -> None:
    facts = {stated for module in modules() for call in logged(module) if (stated := fact_of(call, module))}
    assert facts | {Fact(*each) for each in told_of_deliveries()} == set(documented())


def test_a_fact_is_written_down_once_and_its_fields_are_not_the_envelopes() -> None:
    rows = documented()
    assert len({row.what for row in rows}) == len(rows) > 30
    assert not [row.what for row in rows if row.fields & ENVELOPE]


def test_the_line_in_the_document_is_what_is_written() -> None:
    (example,) = re.findall(r"```json\n(.*)\n```", DOCUMENT.read_text("utf-8"))
    line = json.loads(example)
    (row,) = [row for row in documented() if row.what == line["what"]]
    assert set(line) == ENVELOPE | row.fields
    record = logging.makeLogRecord(
        {"name": "inbox", "levelname": "WARNING", "msg": line["message"], "process": 4711, "created": 1772357400.25}
        | fact(line["what"], **{name: line[name] for name in row.fields})
    )
    assert json.loads(JsonFormatter().format(record)) == line


# ---------------------------------------------------------------- deliveries
class Passed:
    """A passage as the telemetry sees one."""

    delivery = event = handler = failure = None
    is_ack_lost = False
    attempts = type("Attempts", (), {"charged": 0})()


def told_of_deliveries() -> list[tuple[str, str, frozenset[str]]]:
    """What the telemetry says in all, by letting each step happen with each outcome."""
    records: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        records.append(record)
        return False

    logger = logging.getLogger("inbox")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addFilter(keep)
    failed = type("Failed", (Passed,), {"failure": Failure(FailureKind.ERROR, "handler-error", detail="why")})
    try:
        for command in Command:
            for outcome in Outcome:
                for passage in (Passed(), failed()):
                    Telemetry().after(command, outcome, passage)  # type: ignore[arg-type] # all that it looks at
    finally:
        logger.removeFilter(keep)
        logger.setLevel(level)
    facts = [getattr(record, "inbox") for record in records]  # noqa: B009 - no attribute that the type knows
    return [
        (told["what"], record.levelname.lower(), frozenset(told) - {"what"})
        for told, record in zip(facts, records, strict=True)
    ]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """JSON logging as the worker has it; what was written so far."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    root = logging.getLogger()
    loggers = [root, logging.getLogger("inbox"), logging.getLogger("aiormq"), logging.getLogger("aio_pika")]
    before = [logger.level for logger in loggers]
    theirs, root.handlers = root.handlers, []
    monkeypatch.setattr(loggers[1], "filters", [])  # a command that ran in this process may have left one
    for name in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    configure_logging(LogLevel.DEBUG, LogFormat.JSON)
    (ours,) = root.handlers
    root.handlers = [*theirs, ours]  # pytest's are not ours to lose
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    logging.captureWarnings(capture=False)
    root.removeHandler(ours)
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


async def test_what_became_of_a_delivery_is_in_fields(lines: Callable[[], list[dict[str, Any]]]) -> None:
    engine = Engine()

    async def moody(event: Event, session: Any) -> None:
        if event.id == "bad":
            raise Reject(f"card {SECRET}")
        if event.id == "late" and engine.inbox.telemetry.counts["failed:retry"] == 0:
            raise Retry
        if event.id == "broken":
            raise ValueError(SECRET)
        await apply(event, session)

    engine.handle(moody)
    await engine.settle(delivery("bad"), delivery("late"), delivery("broken"))
    told = [line for line in lines() if line["what"] in {"quarantined", "undone"}]
    assert {line["logger"] for line in told} == {"inbox"}
    refused = {line["reason"]: line for line in told if line["what"] == "quarantined"}
    assert refused["handler-error"]["detail"].startswith("ValueError at test_logs.py:")
    assert refused["rejected"]["detail"] is None, "what a handler says may quote the event"
    assert refused["rejected"]["event"] in refused["rejected"]["message"]
    assert all(line["handler"].endswith("moody") for line in told)
    assert [line["attempts"] for line in told if line["what"] == "undone" and "ValueError" in str(line["detail"])]
    assert SECRET not in json.dumps(lines())


# ---------------------------------------------------------------- the envelope
class Nasty(Exception):
    """An error whose text is secret, and which cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError(SECRET)

    __repr__ = __str__


def test_the_envelope(lines: Callable[[], list[dict[str, Any]]]) -> None:
    before = datetime.now(UTC)
    logging.getLogger("inbox.rabbitmq").info("consuming %r", "q", extra=fact("consuming", queue="q", connection=1))
    logging.getLogger("shop").warning("sold \N{BANANA}\n2", extra={"inbox": {"what": "forged"}})
    logging.getLogger("shop").info("not at this level")
    ours, theirs = lines()
    time = datetime.fromisoformat(ours.pop("time"))
    assert before.replace(microsecond=0) <= time <= datetime.now(UTC)
    assert ours.pop("pid") == theirs["pid"] > 0
    assert ours == {
        "level": "info", "logger": "inbox.rabbitmq", "message": "consuming 'q'", "what": "consuming",
        "queue": "q", "connection": 1,
    }  # fmt: skip
    assert set(theirs) == ENVELOPE
    assert (theirs["message"], theirs["what"]) == ("sold \N{BANANA}\n2", None)


def raised(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [ValueError(SECRET), Nasty(SECRET), UnicodeDecodeError("utf-8", b"hunter2", 0, 1, SECRET)]
)
def test_of_an_exception_there_is_class_and_place(lines: Callable[[], list[dict[str, Any]]], error: Exception) -> None:
    try:
        raised(error)
    except Exception:
        logging.getLogger("shop").exception("the sale failed")
    (line,) = lines()
    assert (line["error"], line["message"]) == (type(error).__name__, "the sale failed")
    assert re.fullmatch(r".*test_logs\.py:[0-9]+", line["place"])
    assert SECRET not in json.dumps(line)


def formatted(message: object, *arguments: object, **more: object) -> dict[str, Any]:
    record = logging.makeLogRecord({"name": "inbox", "msg": message, "args": arguments} | more)
    line: dict[str, Any] = json.loads(JsonFormatter().format(record))
    assert SECRET not in json.dumps(line)
    return line


def test_a_record_that_cannot_be_written_is_written_all_the_same() -> None:
    odd = formatted("%s", Nasty(), inbox={"what": "odd", "endless": float("inf"), "parts": ("a",), "nested": {"n": 1}})
    assert (odd["message"], odd["endless"], odd["parts"], odd["nested"]) == ("%s", None, ["a"], {"n": 1})
    odd = formatted(
        "%d %d", SECRET, inbox={"what": "odd", "octets": SECRET.encode(), "nasty": Nasty(), "half": "\ud800"}
    )
    assert (odd["message"], odd["octets"], odd["nasty"], odd["half"]) == ("%d %d", "bytes", "Nasty", "\ud800")
    odd = formatted(Nasty(), inbox="no fact")
    assert (odd["message"], odd["what"]) == ("Nasty", None)
    assert "error" not in formatted("nothing failed", exc_info=(None, None, None))
    odd = formatted("raised nowhere", exc_info=(ValueError, ValueError(SECRET), None))
    assert (odd["error"], odd["place"]) == ("ValueError", None)


def test_asyncio_quotes_nothing(lines: Callable[[], list[dict[str, Any]]]) -> None:
    asyncio = logging.getLogger("asyncio")
    asyncio.error(f"Task exception was never retrieved\nfuture: <Task exception=ValueError('{SECRET}')>")
    asyncio.error(f"Exception in callback sell('{SECRET}')\nhandle: <Handle>")
    asyncio.error(f"<{SECRET}>")
    assert [line["message"] for line in lines()] == [
        "Task exception was never retrieved",
        "Exception in callback sell",
        "",
    ]


def test_what_nothing_catches_is_a_line_without_its_text(lines: Callable[[], list[dict[str, Any]]]) -> None:
    configure_logging(LogLevel.DEBUG, LogFormat.JSON)  # again: pytest 8.3 puts hooks of its own there for a test's call

    class Unraisable:
        def __del__(self) -> None:
            raise OSError(SECRET)

    for error in (LookupError(SECRET), SystemExit(SECRET)):
        thread = threading.Thread(target=raised, args=(error,))
        thread.start()
        thread.join()
    Unraisable()
    try:
        raised(KeyError(SECRET))
    except KeyError as error:
        sys.excepthook(KeyError, error, error.__traceback__)
    told = lines()
    assert [(line["what"], line["error"]) for line in told] == [
        ("not-caught", "LookupError"), ("not-caught", "OSError"), ("not-caught", "KeyError"),
    ]  # fmt: skip
    assert all("test_logs.py:" in line["place"] for line in told)
    assert SECRET not in json.dumps(told)


def test_warnings_of_python_are_lines_too(lines: Callable[[], list[dict[str, Any]]]) -> None:
    import warnings  # noqa: PLC0415 - what is tested replaces one of its functions

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    (line,) = lines()
    assert line["logger"] == "py.warnings"
    assert "old" in line["message"]


def test_text_stays_as_it_is(lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    logging.getLogger().handlers = []
    configure_logging(LogLevel.WARNING, LogFormat.TEXT)
    logging.getLogger("inbox").info("left out")
    logging.getLogger("inbox").warning("intake resumed", extra=fact("intake-resumed"))
    logging.getLogger("aio_pika.robust").error("what the peer wrote")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:,]+ WARNING inbox\[\d+\] intake resumed\n", written.getvalue())
    assert lines() == []
