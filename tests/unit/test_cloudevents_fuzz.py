"""Whatever arrives, it is an event or it is refused: nothing else is ever raised."""

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from inbox.core.cloudevents import PREFIXES, decode, encode
from inbox.core.delivery import Delivery
from inbox.errors import Undecodable
from tests.unit.cloudevents_cases import FETCHER_SHAPES, fetcher

NAMES = [
    "id",
    "source",
    "type",
    "specversion",
    "time",
    "subject",
    "dataschema",
    "datacontenttype",
    "data",
    "ext",
    "",
    "-",
]
VALUES: list[object] = [
    *(None, "", "1.0", "x", "/s", "é", "\ud800", "\x00", "a b", "2026-01-02T03:04:05Z", "9999-99-99T99:99:99Z"),
    *(b"", b"1.0", b"\xff", bytearray(b"x"), memoryview(b"/s"), 0, 5, 2**70, True, 1.5, float("nan"), Decimal(1)),
    *(["x"], {"x": 1}, object(), datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2)),  # noqa: DTZ001 - the case
    *(datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))), "application/json", "text/plain;charset=latin1"),
]
CONTENT_TYPES = [
    *(None, "", "x", "application/json", "application/json;", "text/plain", "\ud800", "application/cloudevents"),
    *("application/cloudevents+json", "APPLICATION/CLOUDEVENTS+JSON;charset=x", "application/cloudevents-batch+json"),
]
BODIES = [b"", b"{", b"{}", b"[]", b"\xff", b'{"id":"1"}', b"[" * 5_000, b'"\\ud800"', b"nan", b"1" * 5_000]


@pytest.mark.parametrize("seed", range(8))
def test_odd_deliveries_in_binary_mode(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    good = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    for _ in range(500):
        prefix = draw.choice(PREFIXES)
        headers: dict[str, object] = {prefix + name: value for name, value in good.items()}
        for name in draw.choices(NAMES, k=draw.randint(0, 3)):
            headers[draw.choice([prefix, prefix, prefix.upper(), "x-"]) + name] = draw.choice(VALUES)
        with suppress(Undecodable):
            decode(Delivery(draw.choice(BODIES), headers, draw.choice(CONTENT_TYPES)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", FETCHER_SHAPES)
def test_damaged_bodies_in_structured_mode(shape: str, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    encoded = encode(decode(fetcher(shape)), "structured")
    for _ in range(100):
        body = bytearray(encoded.body)
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(body))
            body[place : place + draw.randint(0, 2)] = draw.choice([b"", b'"', b"{", b"\x00", b"\xff", b",", b"\\u"])
        with suppress(Undecodable):
            decode(Delivery(bytes(body), encoded.headers, encoded.content_type))
