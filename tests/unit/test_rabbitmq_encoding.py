"""What is written by us is read by the client library as what it was, and nothing inexact passes for exact."""

import math
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from inbox.adapters.rabbitmq.encoding import ExactProperties, InexactError, encode_table, exact_properties, is_same

EXACT: dict[str, Any] = {
    "text": "grüße \N{SNOWMAN} \0",
    "empty text": "",
    "text that is not UTF-8": b"\xff\xfe",
    "byte array": bytearray(b"\x00\xff"),
    "empty byte array": bytearray(),
    "byte array of text": bytearray(b"text"),
    "no": False,
    "yes": True,
    "nothing": None,
    "list": [1, "a", b"\xff", bytearray(b"a"), None, [True, []], {}],
    "table": {"a": {"b": [{"c": -1}]}, "": 1},
    "a float of single precision": 0.5,
    "a float of double precision": 0.1,
    "minus zero": -0.0,
    "no number": math.nan,
    "infinite": -math.inf,
    "decimal": Decimal("1.2300"),
    "decimal without places": Decimal(7),
    "zero with places": Decimal("0.00"),
    "time": datetime(2026, 6, 25, 1, 2, 3, tzinfo=UTC),
    "the first time": datetime(1970, 1, 1, tzinfo=UTC),
    "time with milliseconds": datetime(2026, 6, 25, 1, 2, 3, 456_000, tzinfo=UTC),
    "a time that fits no 32 bits": datetime(2200, 1, 1, tzinfo=UTC),
} | {
    str(number): number
    for number in (0, -1, -128, -129, 127, 128, 255, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63))
}


def parsed(octets: bytes) -> Basic.Properties:
    header = ContentHeader()
    header.unmarshal(struct.pack(">HHQ", 60, 0, 0) + octets)
    return header.properties


@pytest.mark.parametrize("value", EXACT.values(), ids=EXACT.keys())
def test_a_value_is_read_back_as_it_was(value: Any) -> None:
    made = exact_properties({}, {"k": value, "deep": {"l": [value]}}, "id")
    read = parsed(made.marshal()).headers
    assert read is not None
    assert is_same(read, {"k": value, "deep": {"l": [value]}})


@pytest.mark.parametrize("length", [128, 129, 255])
def test_a_long_name_is_not_cut(length: int) -> None:
    assert parsed(exact_properties({}, {"n" * length: 1}, "id").marshal()).headers == {"n" * length: 1}


@pytest.mark.parametrize(
    "value",
    [
        b"text",  # would be read as a text
        2**63,
        -(2**63) - 1,
        Decimal("0.3") ** 100,
        Decimal("1E+3"),
        Decimal("NaN"),
        Decimal(2**40),
        Decimal("1e-300"),
        datetime(2026, 6, 25),  # noqa: DTZ001 - that is the point
        datetime(2026, 6, 25, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 6, 25, 0, 0, 0, 456, tzinfo=UTC),
        datetime(1969, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 2, 0, 0, 0, 500_000, tzinfo=UTC),
        (1, 2),
        memoryview(b"x"),
        object(),
        "\ud800",
        {"k" * 256: 1},
        {1: 1},
    ],
)
def test_what_has_no_exact_form_is_refused(value: Any) -> None:
    for headers in ({"k": value}, {"k": [value]}):
        with pytest.raises(InexactError):
            exact_properties({}, headers, "id")


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InexactError):
        exact_properties({}, {"k": deep}, "id")


def test_the_properties_are_read_back_as_they_were() -> None:
    given = {
        "content_type": "application/json",
        "content_encoding": "",
        "delivery_mode": 2,
        "priority": 9,
        "correlation_id": "c",
        "reply_to": "r",
        "timestamp": datetime(2026, 6, 25, 0, 0, 0, 1000, tzinfo=UTC),
        "message_type": "t",
        "app_id": "a" * 255,
    }
    read = parsed(exact_properties(given, {}, "id").marshal())
    assert {name: getattr(read, name) for name in given} == given
    assert (read.message_id, read.user_id, read.expiration, read.headers) == ("id", None, None, None)


@pytest.mark.parametrize(
    "properties", [{"app_id": "a" * 256}, {"priority": 256}, {"priority": "1"}, {"cluster_id": "c"}, {"timestamp": 1}]
)
def test_a_property_without_a_form_is_refused(properties: dict[str, object]) -> None:
    with pytest.raises(InexactError):
        exact_properties(properties, {}, "id")


def test_settled_octets_are_what_the_client_library_sends() -> None:
    made = exact_properties({}, {"a": 1}, "id")
    assert isinstance(made, ExactProperties)
    assert ContentHeader(properties=made, body_size=3).marshal() == struct.pack(">HHQ", 60, 0, 3) + made.octets
    assert made.message_id == "id"  # under which the library looks for what comes back


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("a", b"a"),
        (b"a", bytearray(b"a")),
        (0.0, -0.0),
        (Decimal("1.0"), Decimal("1.00")),
        ([1], [1, 2]),
        ([1], [True]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {"b": None}),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_two_that_differ_in_value_or_type_are_not_the_same(one: object, other: object) -> None:
    assert not is_same(one, other)
    assert not is_same(other, one)
    assert is_same(one, one)


def test_tables_keep_their_order() -> None:
    assert encode_table({"b": None, "a": None}) == b"\x00\x00\x00\x06\x01bV\x01aV"
