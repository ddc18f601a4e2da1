"""`inbox quarantine` where no server is needed: what it takes, what it shows, how it ends."""

import asyncio
import io
import json
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.app import Inbox
from inbox.cli.main import app
from inbox.cli.options import ATTENTION, OK, UNUSABLE
from inbox.cli.quarantine_file import LineRefused, read_line, write_line
from inbox.cli.quarantine_options import StateName, Which, make_filters
from inbox.cli.quarantine_report import body_text
from inbox.config import DatabaseSettings
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.quarantine import QuarantineState, Selection
from inbox.core.records import InboxRecord
from inbox.errors import ConfigurationError
from inbox.testing.memory import MemoryDatabase, MemoryStore
from tests.unit.engine import FAST, delivery
from tests.unit.test_cli_schema import Ended, Run

HERE = "tests.unit.test_cli_quarantine"
ALL = Selection((*QuarantineState,))

store = MemoryStore()
inbox = Inbox("billing", store=store, settings=FAST)
other_store = MemoryStore(settings=DatabaseSettings(quarantine_rows=2))
other = Inbox("mail", store=other_store)


@inbox.handler("t")
async def apply(event: Event, session: AsyncSession) -> None:
    session.write(event.id)  # type: ignore[attr-defined] # the store in memory


@inbox.handler("bad")
async def fail(event: Event, session: AsyncSession) -> None:
    raise LookupError("secret")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("INBOX_DATABASE_URL", "INBOX_CONSUMER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    for each, name in ((store, "billing"), (other_store, "mail")):
        monkeypatch.setattr(each, "database", MemoryDatabase())
        monkeypatch.setattr(each, "effects", each.database.effects)
        each.for_consumer(name, concurrency=1, deadline=1.0)

    def run(*arguments: str, url: str = "") -> Ended:
        with pytest.raises(SystemExit) as stopped:
            app(["quarantine", *arguments])
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


async def refuse(*identifiers: str, kind: str = "t", reason: str = "handler-error", body: bytes = b'"secret"') -> None:
    for identifier in identifiers:
        event = CloudEvent(id=identifier, source="/s", type=kind)
        record = InboxRecord("billing", identifier.encode())
        await store.end_attempt(identifier.encode(), failed=True, error="LookupError at app.py:3")
        made = Event(event, record, Origin("events", kind))
        await store.quarantine(delivery(identifier, body, kind=kind), made, reason, "LookupError at app.py:3")


@pytest.fixture
async def three(run: Run) -> None:
    await refuse("é-1", "é-2")
    await refuse("é-3", kind="bad", reason="no-handler")


def states() -> list[str]:
    return [row.state for row in store.quarantined]


def digests() -> list[str]:
    return [digest.hex() for digest in store.tables.quarantine]


# ------------------------------------------------------------------ list
@pytest.mark.usefixtures("three")
def test_a_list_shows_everything_but_the_payload(run: Run) -> None:
    ended = run("list", f"{HERE}:inbox")
    assert ended.exit_code == OK
    lines = ended.stdout.splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["é-3", "é-2", "é-1"]
    assert lines[1].split()[:5] == [digests()[2][:12], "open", "no-handler", "1", "1"]
    assert "2  open handler-error" in ended.stdout
    assert "3 entries in all." in ended.stdout
    assert "--after" not in ended.stdout
    assert "secret" not in ended.output


@pytest.mark.usefixtures("three")
def test_pages_go_on_where_the_last_one_ended(run: Run) -> None:
    seen: list[str] = []
    words: list[str] = []
    page: dict[str, Any] = {}
    for _ in range(2):
        page = json.loads(run("list", f"{HERE}:inbox", "--limit", "2", "--oldest-first", "--json", *words).stdout)
        seen += [entry["event_id"] for entry in page["entries"]]
        words = ["--after", page["next"] or ""]
    assert seen == ["é-1", "é-2", "é-3"]
    assert page["next"] is None
    assert f"The next page: --after {words[1]}" not in run("list", f"{HERE}:inbox").stdout
    assert "The next page: --after 2" in run("list", f"{HERE}:inbox", "--limit", "1").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--reason", "no-handler"], ["é-3"]),
        (["--reason", "no-handler", "--reason", "handler-error", "--type", "t"], ["é-1", "é-2"]),
        (["--id", "é-2"], ["é-2"]),
        (["--state", "discarded"], []),
        (["--state", "all"], ["é-1", "é-2", "é-3"]),
        (["--since", "1h"], ["é-1", "é-2", "é-3"]),
        (["--until", "1h"], []),
        (["--since", "2020-01-01", "--until", "2020-01-02T00:00+01:00"], []),
    ],
)
@pytest.mark.usefixtures("three")
def test_filters(run: Run, words: list[str], expected: list[str]) -> None:
    found = json.loads(run("list", f"{HERE}:inbox", "--json", "--oldest-first", *words).stdout)
    assert [entry["event_id"] for entry in found["entries"]] == expected
    assert sum(count["entries"] for count in found["counts"]) == len(expected)


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["list", f"{HERE}:inbox", "--since", "yesterday"], "is no time"),
        (["list", f"{HERE}:inbox", "--since", "9999999999w"], "is no time"),
        (["list", f"{HERE}:inbox", "--digest", "xyz"], "hexadecimal digits"),
        (["list", f"{HERE}:inbox", "--after", "xyz"], "this is no cursor"),
        (["list", f"{HERE}:nothing"], "has no 'nothing'"),
        (["list"], "say where"),
        (["list", "--database", "mysql://u@127.0.0.1:1/x"], "say whose"),
        (["list", "--database", "mysql://u@127.0.0.1:1/x", "--consumer", "billing"], "cannot connect"),
        (["show", "xyz", f"{HERE}:inbox"], "hexadecimal digits"),
        (["replay", f"{HERE}:inbox"], "or else --all"),
        (["replay", f"{HERE}:inbox", "--all", "--id", "e"], "or else --all"),
        (["replay", f"{HERE}:other", "--all"], "no handlers"),
        (["discard", f"{HERE}:inbox", "--because", "x"], "or else --all"),
        (["discard", f"{HERE}:inbox", "--because", " ", "--all"], "say why"),
        (["discard", f"{HERE}:inbox", "--because", "x" * 513, "--all"], "at most 512"),
        (["export", f"{HERE}:inbox", "--json"], "name a file"),
        (["export", f"{HERE}:inbox", "--output", "/nowhere/at/all"], "/nowhere/at/all"),
        (["import", "/nowhere/at/all", f"{HERE}:inbox"], "/nowhere/at/all"),
    ],
)
@pytest.mark.usefixtures("three")
def test_a_wrong_option_is_one_line_that_names_the_fix(run: Run, words: list[str], piece: str) -> None:
    ended = run(*words)
    assert ended.exit_code == UNUSABLE, ended.output
    assert piece in ended.stderr
    assert ended.stdout == ""
    assert states() == ["open"] * 3


# ------------------------------------------------------------------ show
@pytest.mark.usefixtures("three")
def test_one_entry_is_shown_with_its_headers_and_history(run: Run) -> None:
    ended = run("show", digests()[0][:9], f"{HERE}:inbox")
    assert ended.exit_code == OK
    for piece in ("é-1", "header       ce-id: 'é-1'", "failed: LookupError at app.py:3", "handler-error", "events"):
        assert piece in ended.stdout, piece
    assert "secret" not in ended.output
    assert run("show", digests()[0], f"{HERE}:inbox", "--body").stdout.endswith('\n"secret"\n')


@pytest.mark.usefixtures("three")
def test_one_entry_for_programs(run: Run) -> None:
    shown = json.loads(run("show", digests()[0], f"{HERE}:inbox", "--json").stdout)
    assert (shown["event_id"], shown["headers"]["ce-id"], shown["attempts"]) == ("é-1", "é-1", 1)
    assert shown["history"][0]["kind"] == "failed"
    assert "body" not in shown
    whole = json.loads(run("show", digests()[0], f"{HERE}:inbox", "--json", "--body").stdout)
    assert whole["body"] == {"text": '"secret"'}


def test_odd_octets_neither_steer_the_terminal_nor_stop_it(run: Run) -> None:
    deep: object = "end"
    for _ in range(5_000):
        deep = [deep]
    odd = Delivery(b"\xff\x1b[2J", {"\x1b[2J": b"\xff", "deep": deep, "lone": "\ud800"}, "\x1b]0;x", queue="\x1b")
    event = CloudEvent(id="\x1b[31m", source="\x1b", type="[bold]\x1b")
    asyncio.run(store.quarantine(odd, event, "refused", "\x1b"))
    (digest,) = digests()
    for words in (["list"], ["show", digest], ["show", digest, "--body"]):
        ended = run(*words, f"{HERE}:inbox")
        assert ended.exit_code == OK, ended.output
        assert "\x1b" not in ended.stdout
    assert "[bold]" in run("list", f"{HERE}:inbox").stdout
    assert "/xtbMko=" in run("show", digest, f"{HERE}:inbox", "--body").stdout
    shown = json.loads(run("show", digest, f"{HERE}:inbox", "--json", "--body").stdout)
    assert (shown["headers"]["lone"], shown["body"]) == ("\ud800", {"base64": "/xtbMko="})
    assert body_text(b"a\x1b\n", is_terminal=True) == "a\N{REPLACEMENT CHARACTER}\n"
    assert body_text(b"a\x1b\n", is_terminal=False) == "a\x1b\n"


@pytest.mark.usefixtures("three")
def test_what_is_not_there_or_not_named_well_enough_is_told(run: Run) -> None:
    ended = run("show", "0" * 64, f"{HERE}:inbox")
    assert (ended.exit_code, ended.stdout) == (ATTENTION, "")
    assert "there is no such entry" in ended.stderr
    store.tables.quarantine[bytes.fromhex(digests()[0][:2] + "0" * 62)] = store.quarantined[0]
    ended = run("show", digests()[0][:2], f"{HERE}:inbox")
    assert ended.exit_code == UNUSABLE
    assert "several entries" in ended.stderr


@pytest.mark.usefixtures("three")
def test_what_cannot_be_read_is_shown_as_far_as_it_is_known(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable(monkeypatch)
    ended = run("show", digests()[0], f"{HERE}:inbox")
    assert (ended.exit_code, ended.stdout) == (ATTENTION, "")
    assert "handler-error" in ended.stderr
    assert "cannot be read by this version" in ended.stderr


def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(type(store.desk), "get", get)


# ------------------------------------------------------------------ replay
@pytest.mark.usefixtures("three")
def test_a_replay_says_what_came_of_it_and_exits_by_that(run: Run) -> None:
    ended = run("replay", f"{HERE}:inbox", "--all")
    assert ended.exit_code == ATTENTION
    assert ended.stdout == (
        "3 entries replayed: 2 applied, 0 applied before, 0 ignored by policy, 1 refused again, 0 kept as they were.\n"
    )
    assert sorted(map(str, store.effects)) == ["é-1", "é-2"]
    assert states() == ["replayed", "replayed", "open"]
    assert "secret" not in ended.output
    again = run("replay", f"{HERE}:inbox", "--type", "t")
    assert (again.exit_code, again.stdout.split(":")[0]) == (OK, "0 entries replayed")


@pytest.mark.usefixtures("three")
def test_a_replay_for_programs(run: Run) -> None:
    report = json.loads(run("replay", f"{HERE}:inbox", "--type", "t", "--limit", "1", "--json").stdout)
    assert report == {
        "selected": 1,
        "applied": 1,
        "duplicates": 0,
        "ignored": 0,
        "quarantined_again": 0,
        "kept": 0,
        "complete": True,
    }
    assert states() == ["replayed", "open", "open"]


@pytest.mark.usefixtures("three")
def test_a_dry_run_counts_and_changes_nothing(run: Run) -> None:
    for words in (["replay"], ["discard", "--because", "x"]):
        ended = run(*words, f"{HERE}:inbox", "--all", "--dry-run")
        assert ended.exit_code == OK
        assert "3 entries would be" in ended.stdout
        assert "2  open handler-error" in ended.stdout
        counted = json.loads(run(*words, f"{HERE}:inbox", "--id", "é-1", "--dry-run", "--json").stdout)
        assert (counted["selected"], counted["dry_run"]) == (1, True)
    assert states() == ["open"] * 3
    assert store.effects == []


# ------------------------------------------------------------------ discard
@pytest.mark.usefixtures("three")
def test_what_is_discarded_keeps_why(run: Run) -> None:
    ended = run("discard", f"{HERE}:inbox", "--reason", "handler-error", "--because", "a test of the producer")
    assert (ended.exit_code, ended.stdout) == (OK, "2 entries discarded.\n")
    assert [(row.state, row.state_note) for row in store.quarantined] == [
        ("discarded", "a test of the producer"),
        ("discarded", "a test of the producer"),
        ("open", None),
    ]
    assert "a test of the producer" in run("show", digests()[0], f"{HERE}:inbox").stdout
    again = run("discard", f"{HERE}:inbox", "--until", "0001-01-02", "--because", "x", "--json")
    assert json.loads(again.stdout) == {"selected": 0, "discarded": 0}


@pytest.mark.usefixtures("three")
def test_what_is_refused_again_meanwhile_is_not_discarded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def discard(*_: object, **__: object) -> int:
        return 2

    monkeypatch.setattr(type(store.desk), "discard", discard)
    assert run("discard", f"{HERE}:inbox", "--all", "--because", "x").exit_code == ATTENTION


# ------------------------------------------------------------------ export, import
@pytest.mark.usefixtures("three")
def test_what_is_exported_can_be_imported_once(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "refused.jsonl"
    assert run("discard", f"{HERE}:inbox", "--id", "é-2", "--because", "x").exit_code == OK
    ended = run("export", f"{HERE}:inbox", "--state", "all", "--output", str(file))
    assert (ended.exit_code, ended.stdout) == (OK, "")
    assert "3 entries exported." in ended.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["refused.jsonl"]
    before = dict(store.tables.quarantine)
    ended = run("import", str(file), f"{HERE}:inbox")
    assert (ended.exit_code, ended.stdout) == (OK, "0 entries imported, 3 there already.\n")
    store.tables.quarantine.clear()
    ended = run("import", str(file), f"{HERE}:inbox", "--dry-run")
    assert ended.stdout == "3 entries would be imported; nothing was changed, 0 there already.\n"
    assert store.quarantined == []
    assert json.loads(run("import", str(file), f"{HERE}:inbox", "--json").stdout) == {
        "lines": 3,
        "imported": 3,
        "dry_run": False,
        "complete": True,
    }
    assert store.tables.quarantine.keys() == before.keys()
    for digest, row in store.tables.quarantine.items():
        assert row.entry(digest) == before[digest].entry(digest)
        assert row.delivery.body == b'"secret"'
    assert run("replay", f"{HERE}:inbox", "--type", "t").exit_code == OK


@pytest.mark.usefixtures("three")
def test_an_export_is_one_object_a_line(run: Run) -> None:
    lines = [json.loads(line) for line in run("export", f"{HERE}:inbox", "--type", "t").stdout.splitlines()]
    assert [line["event_id"] for line in lines] == ["é-1", "é-2"]
    assert (lines[0]["version"], lines[0]["consumer"], lines[0]["body"]) == (1, "billing", "InNlY3JldCI=")


@pytest.mark.usefixtures("three")
def test_what_cannot_be_read_is_no_complete_export(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable(monkeypatch)
    ended = run("export", f"{HERE}:inbox", "--json", "--output", str(tmp_path / "x"))
    assert ended.exit_code == ATTENTION
    assert json.loads(ended.stdout) == {"exported": 0, "unreadable": 3}
    assert "3 entries gone meanwhile" in ended.stderr


@pytest.mark.usefixtures("three")
def test_an_export_that_fails_leaves_no_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(*_: object) -> list[object]:
        raise ConfigurationError("away")

    monkeypatch.setattr(type(store.desk), "get", get)
    (tmp_path / "x").write_text("what was there before")
    assert run("export", f"{HERE}:inbox", "--output", str(tmp_path / "x")).exit_code == UNUSABLE
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "what was there before")]


@pytest.mark.usefixtures("three")
def test_it_is_imported_from_standard_input_for_another_consumer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = run("export", f"{HERE}:inbox").stdout

    class Input:
        buffer = io.BytesIO(text.encode() + b"\n\n")

    monkeypatch.setattr(sys, "stdin", Input)
    ended = run("import", "-", f"{HERE}:other")
    assert ended.exit_code == ATTENTION, "it has room for two"
    assert ended.stdout == "2 entries imported.\n"
    assert "the quarantine is full" in ended.stderr
    assert {row.event_id for row in other_store.quarantined} == {"é-1".encode(), "é-2".encode()}
    assert not other_store.tables.quarantine.keys() & store.tables.quarantine.keys()


@pytest.mark.usefixtures("three")
def test_every_wrong_line_is_told_by_its_number_and_nothing_is_imported(run: Run, tmp_path: Path) -> None:
    lines = run("export", f"{HERE}:inbox").stdout.splitlines()
    store.tables.quarantine.clear()
    file = tmp_path / "x"
    changed = lines[1].replace('"body":"InNlY3JldCI="', '"body":"InNlY3JldSI="')
    assert changed != lines[1]
    file.write_text("\n".join([lines[0], "", changed, "nonsense", lines[2]]))
    ended = run("import", str(file), f"{HERE}:inbox")
    assert ended.exit_code == ATTENTION
    assert "line 3: its digest is of something else" in ended.stderr
    assert "line 4: no JSON" in ended.stderr
    assert "nothing was imported" in ended.stderr
    assert store.quarantined == []
    file.write_text("nonsense\n" * 100)
    told = run("import", str(file), f"{HERE}:inbox").stderr.splitlines()
    assert len(told) == 22
    assert "and 80 more lines" in told[20]


async def line(**changes: object) -> dict[str, Any]:
    (found,) = await store.desk.get([next(iter(store.tables.quarantine))])
    made: dict[str, Any] = json.loads(write_line("billing", found))
    return made | changes


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"consumer": ""},
        {"consumer": 7},
        {"consumer": "mail"},
        {"digest": "00" * 32},
        {"digest": None},
        {"state": "closed"},
        {"reason": "x" * 65},
        {"reason": None},
        {"detail": "\ud800"},
        {"event_id": "x" * 513},
        {"event_id": {"base64": "?"}},
        {"event_id": 7},
        {"record_key": {}},
        {"attempts": -1},
        {"attempts": True},
        {"times_seen": 2**32},
        {"history": None},
        {"history": [{"at": None, "kind": "", "words": "a\nb"}]},
        {"history": [{"at": None, "kind": "", "words": "x" * 9000}]},
        {"first_at": "2026-01-01T00:00:00"},
        {"first_at": "soon"},
        {"last_at": None},
        {"state_note": "x" * 513},
        {"headers": []},
        {"headers": {"headers": {"t": "tree", "v": [{"t": "dict", "n": 10**12}]}}},
        {"body": "?"},
        {"body": 7},
    ],
    ids=str,
)
async def test_a_line_that_was_changed_is_refused(change: dict[str, object]) -> None:
    await refuse("e-1")
    assert read_line(json.dumps(await line()).encode()).consumer == "billing"
    with pytest.raises(LineRefused):
        read_line(json.dumps(await line(**change)).encode())


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    "member", ["version", "digest", "headers", "body", "state_at", "history", "event_id", "source"]
)
async def test_a_line_that_lacks_something_is_refused(member: str) -> None:
    await refuse("e-1")
    incomplete = await line()
    del incomplete[member]
    with pytest.raises(LineRefused):
        read_line(json.dumps(incomplete).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"version": 1}'])
def test_what_is_no_entry_is_refused(text: bytes) -> None:
    with pytest.raises(LineRefused):
        read_line(text)


@pytest.mark.usefixtures("run")
async def test_keys_that_are_no_text_come_back_too() -> None:
    record = InboxRecord("billing", b"\xff" * 32)
    event = Event(CloudEvent(id="e", source="/s", type="t"), record, Origin("", ""))
    await store.quarantine(delivery("e"), event, "refused", "")
    (found,) = await store.desk.get([next(iter(store.tables.quarantine))])
    back = read_line(write_line("billing", found).encode()).whole
    assert back.entry == found.entry
    assert back.entry.record_key == b"\xff" * 32


# ------------------------------------------------------------------ options
def test_times_are_read_in_utc_or_in_their_zone_or_as_ages() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text, expected in (
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00+01:00", datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ("90s", now - timedelta(seconds=90)),
        ("2w", now - timedelta(weeks=2)),
    ):
        assert make_filters(Which(since=text)).selection(now).since == expected


def test_states_are_open_unless_others_are_asked_for() -> None:
    now = datetime.now(UTC)
    assert make_filters(Which()).selection(now).states == (QuarantineState.OPEN,)
    assert make_filters(Which(), [StateName.REPLAYED]).selection(now).states == (QuarantineState.REPLAYED,)
    assert make_filters(Which(), [StateName.OPEN, StateName.ALL]).selection(now).states == (*QuarantineState,)


@pytest.mark.parametrize("command", ["", "list", "show", "replay", "discard", "export", "import"])
def test_help_teaches(run: Run, command: str) -> None:
    ended = run(*([command] if command else []), "--help")
    assert ended.exit_code == OK
    assert ("Example: inbox quarantine" in ended.stdout) is bool(command)
