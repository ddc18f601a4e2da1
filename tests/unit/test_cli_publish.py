"""`inbox publish` where no broker is needed."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inbox.cli.main import app
from inbox.cli.options import ATTENTION, OK, UNUSABLE
from inbox.cli.publish import Events, Outcome
from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery
from tests.unit.test_cli_schema import Ended

Run = Callable[..., Ended]
NOWHERE = "amqp://guest:hunter2@127.0.0.1:1/"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("INBOX_BROKER_URL", NOWHERE)

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as stopped:
            app(["publish", "--exchange", "jobs", *arguments])
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


def event(number: int = 1, **more: object) -> str:
    attributes = {"specversion": "1.0", "id": f"e-{number}", "source": "/s", "type": "job.done"}
    return json.dumps({**attributes, **more}, ensure_ascii=False)


def written(folder: Path, *lines: str | bytes) -> str:
    file = folder / "events.jsonl"
    file.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return str(file)


def test_a_dry_run_reads_everything_and_needs_no_broker(run: Run, tmp_path: Path) -> None:
    ended = run(written(tmp_path, event(1), "", " \r", event(2) + "\r"), "--dry-run", "--repeat", "3")
    assert (ended.exit_code, ended.stderr) == (OK, "")
    assert ended.stdout == "Dry run: 6 messages of 2 events would be published.\n"


def test_a_line_that_holds_no_event_ends_it_before_anything_is_sent(run: Run, tmp_path: Path) -> None:
    file = written(tmp_path, event(1), "secret", b"\xff", event(4, type=""), event(5, type="t" * 256))
    ended = run(file)
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")
    told = ended.stderr.splitlines()
    assert [line.split(": ")[1] for line in told[:4]] == ["line 2", "line 3", "line 4", "line 5"]
    assert "missing-type" in told[2]
    assert "longer than 255 octets" in told[3]
    assert told[4] == "inbox publish: nothing was published. Fix: correct these lines, or --skip-invalid"
    assert "secret" not in ended.output


def test_many_bad_lines_are_counted_and_not_all_told(run: Run, tmp_path: Path) -> None:
    ended = run(written(tmp_path, *["{}"] * 25))
    assert ended.stderr.count("missing-specversion") == 20
    assert "inbox publish: and 5 lines more\n" in ended.stderr


def test_bad_lines_can_be_left_out_and_are_told_all_the_same(run: Run, tmp_path: Path) -> None:
    ended = run(written(tmp_path, event(1), "{", event(3)), "--skip-invalid", "--dry-run", "--json")
    assert ended.exit_code == ATTENTION
    assert "left out: line 2: bad-json" in ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["lines"], summary["invalid"], summary["messages"], summary["confirmed"]) == (2, 1, 2, 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("{file}",), "cannot be reached"),
        (("{file}", "--broker", "http://h"), "amqp://"),
        (("{file}", "--exchange", "é" * 128), "--exchange is longer than 255 octets"),
        (("{file}", "--routing-key", "\udcff"), "--routing-key is no Unicode text"),
        (("/nowhere/events.jsonl",), "/nowhere/events.jsonl: No such file or directory"),
        (("/",), "/: Is a directory"),
        (("{file}", "--repeat", "0"), "--repeat"),
    ],
)
def test_what_is_wrong_is_2_with_one_line(run: Run, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    file = written(tmp_path, event())
    ended = run(*(word.format(file=file) for word in words))
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")
    assert says in ended.stderr
    assert "hunter2" not in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    "line",
    [
        event(
            1, data={"n": 1.50, "é": [None]}, time="2030-01-02T03:04:05.60+01:00", datacontenttype="application/json"
        ),
        event(2, data="plain é", datacontenttype="text/plain", subject="s", trace="x", flag=True, count=7),
        event(3, data_base64="AP8=", datacontenttype="application/octet-stream"),
        event(4),
        '{"specversion":"1.0","id":"5","source":"/s","type":"t","data": {"a" : 1e400, "b":12345678901234567890 }}',
    ],
)
def test_what_travels_is_read_as_the_same_event(line: str, mode: str) -> None:
    (read,) = Events(io.BytesIO(line.encode()), mode, None)  # type: ignore[arg-type]
    assert read.message is not None
    message = read.message
    sent = decode(Delivery(line.encode(), {}, "application/cloudevents+json"))
    assert decode(Delivery(message.body, message.headers, message.content_type)) == sent
    assert read.routing_key == sent.type


def test_lines_keep_their_numbers_and_can_be_read_again() -> None:
    events = Events(io.BytesIO(f"\n\n{event(1)}\nx\n{event(2)}".encode()), "binary", "key")
    for _ in range(2):
        assert [(line.number, line.routing_key) for line in events] == [(3, "key"), (4, ""), (5, "key")]


def test_what_was_not_sent_is_what_is_left() -> None:
    outcome = Outcome(lines=10, confirmed=5)
    outcome.failed[3] += 2
    summary = outcome.as_dict(20)
    assert (summary["confirmed"], summary["unconfirmed"], summary["not_sent"]) == (5, 2, 13)
    assert summary["failed_lines"] == [3]


def test_help_teaches(run: Run) -> None:
    text = " ".join(run("--help").stdout.split())
    for piece in ("Example: inbox publish", "Exit codes: 0", "--json prints one object", "--repeat", "Ctrl-C"):
        assert piece in text, piece
