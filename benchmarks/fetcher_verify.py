"""What it costs to verify one job event of Fetcher.

    python -m benchmarks.fetcher_verify

A body of 1 KiB, whose first candidate is right: what every genuine event costs. Beside it what a forgery costs, for
which every key, route and job line is tried, and larger bodies. Decoding comes before, and is told for comparison.
The figure is the best of several rounds: the rest is what else the machine did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery, Origin
from inbox.demo.jobs import Job, Sender, json_body
from inbox.fetcher import FetcherVerifier, JobEventRefused

Work = Callable[[], Awaitable[None]]

#: Microseconds that the first of them may take.
TARGET = 50.0

_EXCHANGE = "fetcher.job.events"
_JOB_ID = "01979c3a-7c1e-7b52-9a53-3f6d1c2b4e5f"
_KEYS = [bytes([number]) * 32 for number in range(3)]


def genuine(size: int) -> Delivery:
    """A genuine delivery whose body has `size` octets."""
    result = {
        "path": f"external-data/{_JOB_ID}.json",
        "sizeBytes": 229,
        "rowCount": 2,
        "format": "json",
        "hmac": "5d" * 32,
        "integrity": {"algorithm": "HMAC-SHA256", "signature": "5d" * 32},
        "protection": {"encrypted": True, "mode": "adapter-managed", "appliedBy": "adapter"},
    }
    members: dict[str, Any] = {
        "jobId": _JOB_ID,
        "metadata": {"correlationId": "c-42", "source": "plugin_crm"},
        "status": "completed",
        "result": result,
        "executionTimeMs": 1834,
        "completedAt": "2026-06-25T14:19:58.123456789Z",
    }
    draw = random.Random(1)  # noqa: S311 - test data
    while (left := size - len(json_body(members))) > 0:
        name = f"field{len(members['metadata'])}"
        members["metadata"][name] = "".join(draw.choices("abcdefghij ", k=min(60, max(left - len(name) - 6, 1))))
    job = Job(_JOB_ID, "completed", json_body(members))
    encoded = Sender(_EXCHANGE, "single-tenant", _KEYS[0]).encoded(job, time.time())
    return Delivery(encoded.body, encoded.headers, "application/json", origin=Origin(_EXCHANGE, job.routing_key))


def forged(delivery: Delivery) -> Delivery:
    """The same with another signature, and with a death, so that every route is tried."""
    headers = {**delivery.headers, "x-message-signature": "0" * 64, "x-first-death-exchange": _EXCHANGE}
    return Delivery(delivery.body, headers, delivery.content_type, origin=Origin("", "parking"))


def verifying(verifier: FetcherVerifier, delivery: Delivery) -> Work:
    """Verify, as the engine does once it has decoded."""
    event = decode(delivery)

    async def work() -> None:
        await verifier.verify(delivery, event)

    return work


def refusing(verifier: FetcherVerifier, delivery: Delivery) -> Work:
    """Verify what is to be refused."""
    verify = verifying(verifier, delivery)

    async def work() -> None:
        try:
            await verify()
        except JobEventRefused:
            return
        raise AssertionError("a forgery was taken")

    return work


def decoding(delivery: Delivery) -> Work:
    """What comes before."""

    async def work() -> None:
        decode(delivery)

    return work


async def cost(work: Work, rounds: int, times: int) -> float:
    """Microseconds that `work` takes."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(times):
            await work()
        best = min(best, (time.perf_counter() - begin) / times)
    return best * 1e6


async def measure(rounds: int, times: int) -> dict[str, float]:
    """Microseconds of each."""
    one, three = FetcherVerifier(_KEYS[:1]), FetcherVerifier([*_KEYS[1:], _KEYS[0]])
    figures = {}
    for size, label in ((1 << 10, "1 KiB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")):
        delivery = genuine(size)
        many = max(times >> (size.bit_length() - 11), 3)
        cases = {
            "genuine": verifying(one, delivery),
            "genuine, third key": verifying(three, delivery),
            "forged, 3 keys, 2 routes, 2 job lines": refusing(three, forged(delivery)),
            "decoding before it": decoding(delivery),
        }
        for name, work in cases.items():
            figures[f"{label}, {name}"] = await cost(work, rounds, many)
    return figures


def main() -> None:
    """Measure, print, and fail where the target is missed.

    Raises:
        SystemExit: with 1 where it is.
    """
    parser = argparse.ArgumentParser(prog="fetcher_verify", description="What verifying one job event costs.")
    parser.add_argument("--rounds", type=int, default=7, help="the best of so many is told")
    parser.add_argument("--times", type=int, default=2000, help="verifications of 1 KiB in a round")
    parser.add_argument("--json", action="store_true", help="print one JSON object, of microseconds")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.rounds, options.times))
    if options.json:
        print(json.dumps({name: round(value, 1) for name, value in figures.items()}))  # noqa: T201 - what it is for
    else:
        for name, value in figures.items():
            print(f"{value:10.1f} us  {name}")  # noqa: T201 - what it is for
    raise SystemExit(0 if figures["1 KiB, genuine"] < TARGET else 1)


if __name__ == "__main__":
    main()
