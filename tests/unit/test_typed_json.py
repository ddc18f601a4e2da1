"""Headers come back from JSON as they were: values and types."""

import math
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from inbox.core.typed_json import Opaque, dump_headers, load_headers

TEXTS = ("", "e-1", "é", "\0", "\ud800", '"\\', "{}", "\U0001f600")
SCALARS: tuple[object, ...] = (
    *TEXTS,
    *(None, True, False, 0, 1, -(2**63), 2**64 - 1),
    *(0.0, -0.0, 0.1, 1e308, 5e-324, math.inf, -math.inf),
    *(b"", b"\xff\0", bytearray(b"\xfe"), Decimal("1.10"), Decimal("-0E+3")),
    *(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
)


def types(value: object) -> object:
    if isinstance(value, list):
        return [types(item) for item in value]
    if isinstance(value, dict):
        return [(type(key), types(item)) for key, item in value.items()]
    return type(value), math.copysign(1, value) if isinstance(value, float) else None


def drawn(chance: random.Random, depth: int = 0) -> object:
    shape = chance.random()
    if depth > 4 or shape < 0.6:
        return chance.choice(SCALARS)
    size = chance.randrange(4)
    if shape < 0.8:
        return [drawn(chance, depth + 1) for _ in range(size)]
    keys = (*TEXTS, b"k", 7)
    return {chance.choice(keys): drawn(chance, depth + 1) for _ in range(size)}


@pytest.mark.parametrize("seed", range(300))
def test_they_come_back_as_they_were(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - drawn tests, no secrets
    headers = {chance.choice(TEXTS): drawn(chance) for _ in range(5)}
    back = load_headers(dump_headers(headers))
    assert back == headers
    assert types(back) == types(headers)


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: f"{type(value).__name__}-{value!a}"[:40])
def test_each_scalar(value: object) -> None:
    back = load_headers(dump_headers({"x": value}))["x"]
    assert back == value
    assert types(back) == types(value)


def test_not_a_number() -> None:
    back = load_headers(dump_headers({"x": math.nan}))["x"]
    assert isinstance(back, float)
    assert math.isnan(back)


def test_what_looks_like_our_own_writing_is_a_value_like_any_other() -> None:
    headers: dict[str, object] = {"x": {"t": "bytes", "v": "AA=="}, "y": [{"t": "list", "n": 1}], "t": "tree"}
    assert load_headers(dump_headers(headers)) == headers


def test_depth_has_no_limit() -> None:
    deep: object = "end"
    for _ in range(50_000):
        deep = [deep]
    back = load_headers(dump_headers({"x": deep}))["x"]
    while isinstance(back, list):
        (back,) = back
    assert back == "end"


def test_a_foreign_type_is_kept_as_words_that_say_so() -> None:
    back = load_headers(dump_headers({"x": {3}}))["x"]
    assert isinstance(back, Opaque)
    assert back == "{3}"
    assert dump_headers({"x": back}) == dump_headers({"x": {3}})


@pytest.mark.parametrize("stored", [b"[]", b'{"x": {"t": "pickle", "v": ""}}', b'{"x": {"t": "tree", "v": []}}', b"{"])
def test_what_was_not_written_by_us_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - several kinds of it
        load_headers(stored)
