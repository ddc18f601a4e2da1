"""The grammars that attribute values obey: RFC 3339, RFC 3986, RFC 2045."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from inbox.core.cloudevents import decode
from inbox.core.media_types import parse_media_type
from inbox.core.timestamps import format_timestamp, parse_timestamp
from inbox.core.uris import is_uri
from tests.unit.cloudevents_cases import binary, code_of

MOMENT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-03T04:05:06Z", MOMENT),
        ("2026-02-03t04:05:06z", MOMENT),
        ("2026-02-03T04:05:06+00:00", MOMENT),
        ("2026-02-03T04:05:06-00:00", MOMENT),
        ("2026-02-03T01:05:06-03:00", MOMENT),
        ("2026-02-04T04:04:06+23:59", MOMENT),
        ("2026-02-03T04:05:06.1Z", MOMENT.replace(microsecond=100_000)),
        ("2026-02-03T04:05:06.0000009Z", MOMENT),
        ("2026-02-03T04:05:06.123456789123Z", MOMENT.replace(microsecond=123_456)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
    ],
)
def test_a_date_time_is_read(text: str, moment: datetime) -> None:
    assert parse_timestamp(text) == moment


@pytest.mark.parametrize("digits", range(1, 10))
def test_every_number_of_fraction_digits_is_cut_alike(digits: int) -> None:
    fraction = "987654321"[:digits]
    micros = int(fraction.ljust(6, "0")[:6])
    assert parse_timestamp(f"2026-02-03T04:05:06.{fraction}Z") == MOMENT.replace(microsecond=micros)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-02-03",
        "2026-02-03T04:05:06",
        "2026-02-03 04:05:06Z",
        "2026-02-03T04:05Z",
        "20260203T040506Z",
        "2026-W06-2T04:05:06Z",
        "2026-02-03T04:05:06.Z",
        "2026-02-03T04:05:06,5Z",
        "2026-02-03T24:00:00Z",
        "2026-02-03T04:60:06Z",
        "2026-06-30T23:59:60Z",
        "2026-02-03T04:05:06+0000",
        "2026-02-03T04:05:06+24:00",
        "2026-02-03T04:05:06+00:60",
        "2026-02-03T04:05:06+00:00:01",
        "2026-13-03T04:05:06Z",
        "2026-02-30T04:05:06Z",
        "2026-02-00T04:05:06Z",
        "2023-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "+2026-02-03T04:05:06Z",
        "٢٠٢٦-02-03T04:05:06Z",
        "2026-02-03T04:05:06Z\n",
        " 2026-02-03T04:05:06Z",
        "1770091506",
    ],
)
def test_what_is_no_date_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_timestamp(text)


def test_a_bad_time_is_refused_with_its_own_code() -> None:
    assert code_of(binary({"ce-time": "yesterday"})) == "bad-time"


def test_a_moment_is_written_in_utc() -> None:
    assert format_timestamp(MOMENT.astimezone(timezone(timedelta(hours=5)))) == "2026-02-03T04:05:06Z"
    assert format_timestamp(MOMENT.replace(microsecond=70)) == "2026-02-03T04:05:06.000070Z"


def test_a_moment_without_a_zone_is_not_written() -> None:
    with pytest.raises(ValueError, match="without an offset"):
        format_timestamp(MOMENT.replace(tzinfo=None))


def test_a_moment_outside_the_calendar_in_utc_is_not_written() -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        format_timestamp(datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))))


URIS = [
    "https://github.com/cloudevents",
    "mailto:cncf-wg-serverless@lists.cncf.io",
    "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
    "http://u:p@h:80/p;a=1?q=/?#f?/",
    "http://[2001:db8::1]:8080/",
    "file:///a",
    "a:",
    "a+b-c.1:%41",
    "http://h",
    "http://h?q",
    "https://schemas/x.json#/definitions/y",
]
RELATIVE = [
    "/cloudevents/spec/pull/123",
    "1-555-123-4567",
    "//lerian.fetcher/worker",
    "fetcher",
    "?q",
    "#f",
    ".",
    "./a:b",
]


@pytest.mark.parametrize("text", URIS)
def test_a_uri_is_a_uri(text: str) -> None:
    assert is_uri(text)


@pytest.mark.parametrize("text", RELATIVE)
def test_a_relative_reference_is_no_uri(text: str) -> None:
    assert not is_uri(text)


@pytest.mark.parametrize(
    "text",
    ["a:b c", "a:é", "a:%", "a:%4", "a:%4g", "1a:b", ":a", "a:b^c", "a:<b>", 'a:"', "a:b\\c", "a:#a#b", "a://h:p/",
     "a://[::1/", "a://b@c@d/", "a:[b]", "a:b\n"],
)  # fmt: skip
def test_what_is_no_uri_is_refused(text: str) -> None:
    assert not is_uri(text)


def test_a_long_hostile_uri_is_refused_in_linear_time() -> None:
    for hostile in ("//" + "a:" * 50_000 + "é", "a" * 100_000 + "é", "%41" * 50_000 + "%", "//[" + "a" * 100_000):
        assert not is_uri(f"s:{hostile}")


def test_the_schema_is_a_uri_and_the_source_is_taken_as_it_is() -> None:
    assert decode(binary({"ce-source": "two words"})).source == "two words"
    assert code_of(binary({"ce-dataschema": "/relative"})) == "bad-attribute"
    assert code_of(binary(content_type="json")) == "bad-attribute"


@pytest.mark.parametrize(
    ("text", "essence", "parameters"),
    [
        ("text/plain", "text/plain", {}),
        ("Application/JSON", "application/json", {}),
        ("application/vnd.x+json;v=1", "application/vnd.x+json", {"v": "1"}),
        ("text/plain ; Charset=UTF-8 ; A=B;", "text/plain", {"charset": "utf-8", "a": "B"}),
        ('a/b;x="q \\"r\\\\";y=z', "a/b", {"x": 'q "r\\', "y": "z"}),
    ],
)
def test_a_media_type_is_read(text: str, essence: str, parameters: dict[str, str]) -> None:
    media_type = parse_media_type(text)
    assert media_type.essence == essence
    assert dict(media_type.parameters) == parameters


@pytest.mark.parametrize(
    "text",
    [
        "",
        "json",
        "/",
        "a/",
        "/b",
        "a/b/c",
        "a b/c",
        "a/b;;",
        "a/b;x",
        "a/b;x=",
        'a/b;x="',
        "a/b; x = y",
        "a/b;x=1;X=2",
        "é/b",
    ],
)
def test_what_is_no_media_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a media type"):
        parse_media_type(text)


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        ("application/json", True),
        ("text/json", True),
        ("a/b+json", True),
        ("application/json-seq", False),
        ("json/a", False),
    ],
)
def test_which_media_types_declare_json(text: str, is_json: bool) -> None:
    assert parse_media_type(text).is_json is is_json


def test_which_media_types_declare_utf8() -> None:
    assert parse_media_type("text/plain").is_utf8
    assert parse_media_type("text/plain;charset=US-ASCII").is_utf8
    assert not parse_media_type("text/plain;charset=latin1").is_utf8
