"""`inbox fetcher derive-key` and `inbox fetcher verify` as their users meet them."""

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inbox.cli.main import app
from inbox.cli.options import ATTENTION, OK, UNUSABLE
from inbox.cli.quarantine_file import write_line
from inbox.core.kept import delivery_digest
from inbox.core.quarantine import QuarantinedDelivery, QuarantineEntry, QuarantineState
from tests.unit.fetcher_cases import DELIVERIES, EXCHANGE, KEYS, VECTORS, body_of, delivery_of
from tests.unit.test_cli_schema import Ended
from tests.unit.test_fetcher_verifier import EXPECTED

Run = Callable[..., Ended]
MASTER = VECTORS["keys"][0]["app_enc_key"]
EXTERNAL = VECTORS["keys"][0]["derived"]["external_hmac_hex"]
STORAGE = VECTORS["keys"][0]["derived"]["storage_encryption_hex"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("APP_ENC_KEY", "FETCHER_EXTERNAL_HMAC_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as stopped:
            app(["fetcher", *arguments])
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


# ---------------------------------------------------------------- derive-key
def test_keys_are_derived_from_the_providers_variable_and_each_says_what_it_is_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_ENC_KEY", MASTER)
    ended = run("derive-key")
    assert (ended.exit_code, ended.stderr) == (OK, "")
    assert f"External HMAC key (hex): {EXTERNAL}\n    Verifies job events" in ended.stdout
    assert f"Storage encryption key (hex): {STORAGE}\n    Opens stored results" in ended.stdout
    assert MASTER not in ended.output


def test_the_master_key_comes_from_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{MASTER}\n"))
    assert run("derive-key", "--only", "storage").stdout == f"{STORAGE}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{MASTER}\n"))
    monkeypatch.setenv("APP_ENC_KEY", "another")
    assert run("derive-key", "--stdin", "--only", "external").stdout == f"{EXTERNAL}\n"


def test_on_a_terminal_it_is_asked_for_and_not_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked: list[dict[str, Any]] = []

    def prompt(text: str, **options: Any) -> str:
        asked.append(options)
        return str(MASTER)

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("typer.prompt", prompt)
    assert run("derive-key", "--only", "external").stdout == f"{EXTERNAL}\n"
    assert asked == [{"hide_input": True, "err": True}]


def test_what_is_probably_wrong_is_said_beside_the_keys(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = next(each for each in VECTORS["app_enc_key_forms"] if each["id"] == "hex-by-mistake")
    monkeypatch.setenv("APP_ENC_KEY", mistaken["app_enc_key"])
    ended = run("derive-key", "--json")
    told = json.loads(ended.stdout)
    assert told["external"] == mistaken["external_hmac_hex"]
    assert told["warning"] in ended.stderr
    assert "warning: the master key looks like 64 hex digits" in ended.stderr


@pytest.mark.parametrize(
    ("master", "said"),
    [
        (None, "no master key: set APP_ENC_KEY, or send it to standard input"),
        (MASTER[:-1], "the master key is not standard base64: its padding is missing"),
        (f" {MASTER}", "the master key is not standard base64: white space"),
    ],
)
def test_what_is_no_master_key_ends_with_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, master: str | None, said: str
) -> None:
    if master is not None:
        monkeypatch.setenv("APP_ENC_KEY", master)
    ended = run("derive-key")
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")
    assert ended.stderr.startswith(f"inbox fetcher derive-key: {said}")
    assert MASTER[:-1] not in ended.output


def test_the_master_key_is_no_argument(run: Run) -> None:
    ended = run("derive-key", MASTER)
    assert ended.exit_code == UNUSABLE
    assert EXTERNAL not in ended.output


# ---------------------------------------------------------------- verify
def written(folder: Path, name: str) -> list[str]:
    """The options that name one of the provider's deliveries."""
    given = DELIVERIES[name]
    headers = {header: as_json(value) for header, value in given["headers"].items()}
    (folder / "h.json").write_text(json.dumps(headers))
    (folder / "body").write_bytes(body_of(given["body"]))
    more = ["--allow-1x"] if given.get("allow_legacy_body_only") else []
    return [
        *("verify", "--exchange", given["exchange"], "--routing-key", given["routing_key"], *more),
        *("--headers", str(folder / "h.json"), "--body", str(folder / "body")),
        *("--max-age", str(given["max_age_s"]), "--now", str(given["now_unix_ms"] / 1000)),
    ]


def as_json(given: dict[str, Any]) -> object:
    if given["amqp"] == "x":
        octets = bytes.fromhex(given["value_hex"])
        try:
            return {"bytes": octets.decode()}
        except UnicodeDecodeError:
            return {"hex": given["value_hex"]}
    if given["amqp"] == "T":
        return {"unix": given["value"]}
    return float(given["value"]) if given["amqp"] == "d" else given["value"]


@pytest.mark.parametrize("name", DELIVERIES)
def test_a_delivery_of_the_providers_has_its_verdict_on_the_command_line(run: Run, tmp_path: Path, name: str) -> None:
    given = DELIVERIES[name]
    ended = run(*written(tmp_path, name), "--key", KEYS[given["key"]], "--json")
    told = json.loads(ended.stdout)
    expected = EXPECTED.get(name, ("accepted", None) if given["valid"] else ("invalid", "signature"))
    assert (told["verdict"], told["reason"]) == expected
    assert told["event_id"] == bytes.fromhex(given["headers"]["ce-id"]["value_hex"]).decode()
    assert ended.exit_code == (OK if told["verdict"] == "accepted" else ATTENTION)
    assert KEYS[given["key"]] not in ended.output


def test_each_step_is_a_line_and_the_verdict_the_last(run: Run, tmp_path: Path) -> None:
    ended = run(*written(tmp_path, "v-completed"), "--key", f"{KEYS['k2']},{KEYS['k1']}")
    lines = ended.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [
        ["ok", step] for step in ("headers", "candidates", "signature", "freshness", "event")
    ]
    assert "key 2 of 2" in lines[2]
    assert lines[-1] == "accepted"
    assert (ended.exit_code, ended.stderr) == (OK, "")


def test_a_refusal_says_why_and_what_would_hold(run: Run, tmp_path: Path) -> None:
    ended = run(*written(tmp_path, "v-signature-upper-case-hex"), "--key", KEYS["k1"])
    assert ended.exit_code == ATTENTION
    assert ended.stdout.splitlines()[-3:] == [
        "NO  signature   signature: no key, route and job id give this signature",
        "    hint: the signature would hold as 64 lower-case hex digits and nothing else",
        "invalid (signature)",
    ]


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (("--tenant", "single-tenant"), "accepted"),
        (("--tenant", "other"), "inconsistent (tenant)"),
        (("--source", "//lerian.fetcher/worker"), "accepted"),
        (("--source", "a", "--source", "b"), "inconsistent (ce-source)"),
        (("--now", "1782397600"), "stale (too-old)"),
        (("--exchange", "", "--unrecorded"), "accepted"),
        (("--exchange", "", "--unrecorded", "--worker-exchange", "x"), "invalid (signature)"),
    ],
)
def test_the_rules_are_those_of_the_consumer(run: Run, tmp_path: Path, options: tuple[str, ...], verdict: str) -> None:
    ended = run(*written(tmp_path, "v-completed"), "--key", KEYS["k1"], *options)
    assert ended.stdout.splitlines()[-1] == verdict


def test_keys_come_from_the_environment_or_from_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = written(tmp_path, "v-completed")
    (tmp_path / "keys").write_text(f"{KEYS['k1']}\n")
    assert run(*arguments, "--key-file", str(tmp_path / "keys")).exit_code == OK
    monkeypatch.setenv("FETCHER_EXTERNAL_HMAC_KEY", KEYS["k1"])
    assert run(*arguments).exit_code == OK


def test_a_message_that_died_is_written_with_its_deaths(run: Run, tmp_path: Path) -> None:
    arguments = written(tmp_path, "v-completed")
    file = tmp_path / "h.json"
    deaths = [
        {"queue": "second", "reason": "expired", "exchange": "dlx", "routing-keys": ["dead"], "count": 1},
        {"queue": "first", "reason": "rejected", "exchange": EXCHANGE, "routing-keys": ["job.completed"], "count": 1},
    ]
    died = {"x-death": deaths, "x-first-death-queue": "first", "x-first-death-reason": "rejected"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **died, "x-first-death-exchange": EXCHANGE}))
    ended = run(*arguments, "--key", KEYS["k1"], "--exchange", "", "--routing-key", "parking", "--json")
    assert json.loads(ended.stdout)["verdict"] == "accepted"


def test_a_line_of_an_export_is_a_message(run: Run, tmp_path: Path) -> None:
    delivery = delivery_of("v-completed")
    at = datetime(2026, 6, 25, tzinfo=UTC)
    entry = QuarantineEntry(
        digest=delivery_digest(b"billing", delivery),
        state=QuarantineState.OPEN,
        reason="inconsistent",
        detail="",
        event_id=None,
        event_type=None,
        source=None,
        record_key=None,
        origin=delivery.origin,
        queue="q",
        attempts=0,
        history=(),
        times_seen=1,
        first_at=at,
        last_at=at,
        state_at=None,
        state_note=None,
        body_bytes=len(delivery.body),
        total_bytes=1000,
    )
    file = tmp_path / "one.jsonl"
    file.write_text(write_line("billing", QuarantinedDelivery(entry, delivery)))
    ended = run("verify", "--key", KEYS["k1"], "--exported", str(file), "--json")
    assert (ended.exit_code, json.loads(ended.stdout)["verdict"]) == (OK, "accepted")


WHOLE = ("--exchange", "e", "--routing-key", "k", "--headers", "h.json", "--body", "body")


@pytest.mark.parametrize(
    ("options", "headers", "said"),
    [
        ((*WHOLE,), "{}", "no key: --key, --key-file, or set FETCHER_EXTERNAL_HMAC_KEY"),
        ((*WHOLE, "--key", "hunter2"), "{}", "external key 1 must be 64 hex digits"),
        ((*WHOLE[:4], "--key", EXTERNAL), "{}", "--headers and --body missing: or --exported"),
        ((*WHOLE, "--key", EXTERNAL, "--exported", "x"), "{}", "--exported beside --exchange and --routing-key and"),
        (("--exported", "h.json", "--key", EXTERNAL), "{}", "h.json: line 1 is none of an export: not of version"),
        ((*WHOLE, "--key", EXTERNAL), "not json", "h.json: not JSON in UTF-8"),
        ((*WHOLE, "--key", EXTERNAL), "[]", "h.json: the headers must be one JSON object"),
        ((*WHOLE, "--key", EXTERNAL), '{"t": {"hex": "0g"}}', "h.json: the header t is none"),
        ((*WHOLE, "--key", EXTERNAL), '{"t": {"unix": 99999999999999999}}', "h.json: the header t is none"),
        ((*WHOLE, "--key", EXTERNAL), '{"t": {"t": "odd", "v": "x"}}', "h.json: the header t is none"),
        ((*WHOLE[:-1], "nowhere", "--key", EXTERNAL), "{}", "nowhere: No such file or directory"),
    ],
)
def test_what_cannot_be_verified_ends_with_2_and_a_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, options: tuple[str, ...], headers: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("h.json").write_text(headers)
    Path("body").write_bytes(b"{}")
    ended = run("verify", *options)
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")
    assert ended.stderr.startswith(f"inbox fetcher verify: {said}")
    assert "hunter2" not in ended.output


def test_what_a_peer_wrote_does_not_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    arguments = written(tmp_path, "v-completed")
    file = tmp_path / "h.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "X-Tenant-ID": "\N{RIGHT-TO-LEFT OVERRIDE}\x9b"}))
    ended = run(*arguments, "--key", KEYS["k1"])
    assert ended.stdout.replace("\n", "").isprintable()
