"""`inbox orbit serve` as a process of its own, with its management API; its clock can be turned, so nobody waits."""

import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
#: Longer than a lease and the back-off after it.
PAST_A_LEASE = 31.0
#: What follows a lease is due as soon as that has ended.
_AT_ONCE = ("--first-delay", "0.001", "--longest-delay", "0.001")


class OrbitProcess:
    """A platform that can be killed and started again: same port, same file, same credential."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._options = ("--file", str(folder / "orbit.db"), *_AT_ONCE, *options)
        self._log = tempfile.TemporaryFile("w+", dir=folder)  # noqa: SIM115 - closed by `close`
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.url = self.management_url = self.credential = ""
        self.start()

    def start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "inbox", "orbit", "serve", "--json", "--port", str(self._port), *self._options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, self.log
        told = json.loads(line)
        self.url, self.management_url = told["url"], told["management_url"]
        self.credential = told["credential"] or self.credential
        self._port = int(self.management_url.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def close(self) -> None:
        self.kill()
        self._log.close()

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- its management API
    def ask(self, path: str, body: object = None, method: str | None = None) -> dict[str, Any]:
        """What it answers; `body` is JSON, or octets as they are."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - http, to a server of the test's own
            self.management_url + path, sent, {"Authorization": f"Bearer {self.credential}"}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            members: dict[str, Any] = json.load(answer)
            return members

    def subscribe(self, queue: str, budget: int = 100_000, **more: object) -> str:
        """A subscription; by default its events never end as EXPIRED."""
        return str(self.ask("/v1/subscriptions", {"queue": queue, "budget": budget, **more})["id"])

    def publish(self, queue: str, snapshot: bytes, event_type: str = "task.succeeded") -> str:
        """The event's id; the queue has one subscription."""
        (event,) = self.ask(f"/test/results/{queue}?type={event_type}", snapshot)["events"]
        return str(event["event_id"])

    def event(self, subscription: str, event_id: str) -> dict[str, Any]:
        return self.ask(f"/v1/subscriptions/{subscription}/events/{event_id}")

    def events(self, subscription: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(f"/v1/subscriptions/{subscription}/events")["events"]
        return found

    def states(self, subscription: str) -> dict[str, int]:
        return dict(Counter(str(event["state"]) for event in self.events(subscription)))

    def connections(self, subscription: str) -> int:
        return int(self.ask("/test/connections")["connections"].get(subscription, 0))

    def end_leases(self) -> None:
        """Turn the clock: every lease that runs now has run out."""
        self.ask("/test/clock", {"seconds": PAST_A_LEASE})
