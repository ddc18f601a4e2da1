"""`inbox orbit serve` as a process: what it prints, how it ends, and what a SIGKILL leaves of leases and budgets."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.orbit_client import RawClient, new_id
from tests.services.certificates import make_certificates

ROOT = Path(__file__).parents[2]


class Served:
    """A running `inbox orbit serve`, and what it told."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "inbox", "orbit", "serve", "--json", "--log-format", "json", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.told: dict[str, Any] = json.loads(line) if line else {}

    def end(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Exit code and log."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, [json.loads(line) for line in errors.splitlines()]

    def ask(self, path: str, body: object = None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - http, to the server of the test
            self.told["management_url"] + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.told['credential']}"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            members: dict[str, Any] = json.load(answer)
            return members

    def publish(self) -> str:
        body = {"task_id": new_id(), "status": "succeeded", "n": 9007199254740993}
        return str(self.ask("/test/results/reports", body)["events"][0]["event_id"])

    def event(self, event_id: str) -> dict[str, Any]:
        return self.ask(f"/v1/subscriptions/{self.told['subscription']}/events/{event_id}")


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(*options: str) -> Served:
        served = Served("--port", "0", *options)
        made.append(served)
        return served

    yield start
    for served in made:
        if served.process.poll() is None:
            served.process.kill()
        served.process.communicate()


async def test_a_kill_between_lease_and_acknowledgement_changes_neither(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    file = ("--file", str(tmp_path / "orbit.db"), "--budget", "2")
    first = serve(*file)
    subscription, credential = first.told["subscription"], first.told["credential"]
    event = first.publish()
    async with await RawClient.connect(first.told["url"], credential) as client:
        await client.register(subscription)
        delivery = await client.receive("delivery")
        before = first.event(event)
        assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
        assert await client.end() is None

    second = serve(*file)
    assert second.told["credential"] is None
    assert second.told["subscription"] == subscription
    second.told["credential"] = credential
    assert second.event(event) == before
    assert (before["state"], before["generation"], before["spent"]) == ("leased", "1", 1)
    async with await RawClient.connect(second.told["url"], credential) as client:
        await client.register(subscription)
        assert await client.is_silent(), "the lease goes on"
        second.ask("/test/clock", {"seconds": 31})
        again = await client.receive("delivery")
        assert (again["event"], again["delivery"]["generation"]) == (delivery["event"], "2")
        assert again["event"]["snapshot"]["n"] == 9007199254740993
        assert await client.refusal(client.send_ack(delivery)) == "PROOF_LOST"
        second.ask("/test/clock", {"seconds": 31})
        assert await client.ping()
        assert (second.event(event)["state"], second.event(event)["spent"]) == ("expired", 2)

    second.end(signal.SIGKILL)
    third = serve(*file)
    third.told["credential"] = credential
    assert third.event(event)["state"] == "expired"
    async with await RawClient.connect(third.told["url"], credential) as client:
        await client.register(subscription)
        await client.ack(again)  # nothing newer replaced it
    third.end(signal.SIGKILL)
    fourth = serve(*file)
    fourth.told["credential"] = credential
    assert fourth.event(event)["state"] == "acknowledged"
    async with await RawClient.connect(fourth.told["url"], credential) as client:
        await client.register(subscription)
        await client.ack(again)
    assert fourth.end(signal.SIGTERM)[0] == 0


async def test_what_was_answered_is_kept_whenever_the_kill_comes(serve: Callable[..., Served], tmp_path: Path) -> None:
    file = ("--file", str(tmp_path / "orbit.db"))
    first = serve(*file)
    credential, subscription = first.told["credential"], first.told["subscription"]
    published = [first.publish() for _ in range(40)]
    confirmed: list[str] = []
    async with await RawClient.connect(first.told["url"], credential) as client:
        await client.register(subscription, 32)
        while len(confirmed) < 15:
            frame = await client.receive()
            if frame["type"] == "delivery":
                client.send_ack(frame)
            else:
                confirmed.append(frame["event_id"])
        first.process.kill()
    first.process.communicate()
    second = serve(*file)
    second.told["credential"] = credential
    states = {event: second.event(event)["state"] for event in published}
    assert {states[event] for event in confirmed} == {"acknowledged"}
    assert set(states.values()) <= {"acknowledged", "leased", "due"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_when_it_is_told_to(serve: Callable[..., Served], number: int) -> None:
    served = serve()
    async with await RawClient.connect(served.told["url"], served.told["credential"]) as client:
        await client.register(served.told["subscription"])
        served.publish()
        await client.receive("delivery")
        served.process.send_signal(number)
        assert await client.end() == 1001
    code, log = served.end(0)
    assert code == 0
    assert {line["what"] for line in log} >= {"orbit-serving", "orbit-registered", "orbit-left"}
    text = json.dumps(log)
    assert served.told["credential"] not in text
    assert served.told["subscription"] not in text


def test_a_port_and_a_file_that_are_in_use_are_one_line(serve: Callable[..., Served], tmp_path: Path) -> None:
    file = str(tmp_path / "orbit.db")
    served = serve("--file", file)
    cases = {
        ("--port", served.told["management_url"].rpartition(":")[2]): "another program uses it",
        ("--port", "0", "--file", file): "another server uses it",
    }
    for options, says in cases.items():
        command = [sys.executable, "-m", "inbox", "orbit", "serve", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


async def test_it_prints_lines_for_a_shell(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "inbox", "orbit", "serve", "--port", "0", "--file", str(tmp_path / "o.db")]

    def lines() -> list[str]:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [process.stdout.readline().rstrip() for _ in range(4)]
            process.terminate()
            assert process.wait(30) == 0
        return told

    told = lines()
    patterns = [r"URL='ws://127\.0\.0\.1:\d+/v1/events'", r"MANAGEMENT_URL='http://127\.0\.0\.1:\d+'"]
    patterns += [r"CREDENTIAL='orbit_[\w-]{43}'", r"SUBSCRIPTION='[0-9a-f]{32}'"]
    assert all(re.fullmatch(f"export ORBIT_{pattern}", line) for pattern, line in zip(patterns, told, strict=True))
    again = lines()
    assert again[2] == "# The credential was shown when the file was new; --new-credential makes another one."
    assert again[3] == told[3]
    command.append("--new-credential")
    assert re.fullmatch(f"export ORBIT_{patterns[2]}", lines()[2])


async def test_it_serves_by_tls(serve: Callable[..., Served], tmp_path: Path) -> None:
    import ssl  # noqa: PLC0415 - of this test alone

    made = make_certificates(tmp_path)
    served = serve("--tls-certificate", str(made.server), "--tls-key", str(made.server_key))
    context = ssl.create_default_context(cafile=made.authority)
    async with await RawClient.connect(served.told["url"], served.told["credential"], tls=context) as client:
        await client.register(served.told["subscription"])
        assert await client.ping()
