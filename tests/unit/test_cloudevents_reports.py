"""What users of other CloudEvents libraries ran into with RabbitMQ, one test each."""

from datetime import UTC, datetime

import pytest

from inbox.core.cloudevents import decode
from inbox.core.event import strict_json
from inbox.errors import Undecodable
from tests.unit.cloudevents_cases import JSON, attribute, binary, code_of


def test_an_absent_id_is_refused_and_never_invented() -> None:
    assert code_of(binary(without="ce-id")) == "missing-id"


def test_an_absent_time_stays_absent() -> None:
    event = decode(binary())
    assert event.time is None
    assert event.time_text is None


@pytest.mark.parametrize("octets", [bytes, bytearray, memoryview])
def test_an_id_and_a_time_in_octets_are_read_as_utf8(octets: type) -> None:
    event = decode(binary({"ce-id": octets("é".encode()), "ce-time": octets(b"2026-01-02T03:04:05Z")}))
    assert event.id == "é"
    assert event.time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_an_id_in_octets_is_never_their_python_notation() -> None:
    assert "bytearray" not in attribute("id", bytearray(b"42")).id


@pytest.mark.parametrize("value", [5, True, 1.5, datetime(2026, 1, 1, tzinfo=UTC), b"\xff", ["1"]])
def test_an_id_of_another_type_is_refused_with_a_reason(value: object) -> None:
    with pytest.raises(Undecodable, match="bad-attribute: id is not text in UTF-8"):
        attribute("id", value)


def test_a_time_as_amqp_timestamp_is_read() -> None:
    event = attribute("time", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert event.time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert event.time_text == "2026-01-02T03:04:05Z"


def test_a_leap_second_is_refused_cleanly() -> None:
    assert code_of(binary({"ce-time": "2016-12-31T23:59:60Z"})) == "bad-time"


def test_nine_fraction_digits_are_kept_as_text_and_cut_to_microseconds() -> None:
    event = attribute("time", "2026-06-25T14:19:58.987654999Z")
    assert event.time_text == "2026-06-25T14:19:58.987654999Z"
    assert event.time == datetime(2026, 6, 25, 14, 19, 58, 987654, tzinfo=UTC)


def test_a_time_without_an_offset_is_refused() -> None:
    assert code_of(binary({"ce-time": "2026-06-25T14:19:58"})) == "bad-time"


def test_broken_json_with_a_json_content_type_is_refused() -> None:
    assert code_of(binary(body=b'{"a":', content_type=JSON)) == "bad-json"


@pytest.mark.parametrize("content_type", ["Application/JSON", "application/JSON; Charset=UTF-8", "text/Json"])
def test_media_types_are_compared_without_regard_to_case(content_type: str) -> None:
    assert code_of(binary(body=b"{", content_type=content_type)) == "bad-json"
    assert decode(binary(body=b"{}", content_type=content_type)).datacontenttype == content_type


@pytest.mark.parametrize(
    "body", [b"NaN", b'{"a":Infinity}', b"[-Infinity]", b'{"a":1,"a":1}', b'[{"b":{"a":1,"a":2}}]']
)
def test_nan_and_duplicate_keys_are_refused(body: bytes) -> None:
    assert code_of(binary(body=body, content_type=JSON)) == "bad-json"


def test_an_octet_stream_that_happens_to_be_ascii_stays_octets() -> None:
    assert decode(binary(body=b"plain", content_type="application/octet-stream")).data == b"plain"


def test_two_spellings_of_one_attribute_are_refused() -> None:
    assert code_of(binary({"Ce-Id": "2"})) == "ambiguous-attributes"
    assert code_of(binary({"ce-ID": "1"})) == "ambiguous-attributes"


@pytest.mark.parametrize("prefix", ["ce-", "cloudEvents:", "cloudEvents_"])
def test_all_three_prefixes_are_read(prefix: str) -> None:
    names = {"specversion": "1.0", "id": "7", "source": "/s", "type": "t", "tenant": "x"}
    delivery = binary({prefix + name: value for name, value in names.items()})
    if prefix != "ce-":
        assert code_of(delivery) == "ambiguous-attributes"
        delivery = type(delivery)(b"", {prefix + name: value for name, value in names.items()})
    event = decode(delivery)
    assert (event.id, event.extensions) == ("7", {"tenant": "x"})


@pytest.mark.parametrize("other", ["cloudEvents:", "cloudEvents_"])
def test_prefixes_are_never_mixed(other: str) -> None:
    assert code_of(binary({f"{other}subject": "x"})) == "ambiguous-attributes"


def test_a_json_array_is_accepted() -> None:
    assert decode(binary(body=b"[1,2]", content_type=JSON)).data == b"[1,2]"


def test_a_time_as_integer_is_refused_for_nobody_knows_its_unit() -> None:
    assert code_of(binary({"ce-time": 1782397200000})) == "bad-attribute"


def test_deep_nesting_is_a_bad_message_and_no_crash() -> None:
    assert code_of(binary(body=b"[" * 100_000, content_type=JSON)) == "bad-json"


def test_integers_of_any_size_are_exact() -> None:
    data = decode(binary(body=b'{"n":12345678901234567890}', content_type=JSON)).data
    assert data is not None
    assert strict_json(data) == {"n": 12345678901234567890}


@pytest.mark.parametrize("body", [b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'"\xed\xa0\x80"', b'"\xff"'])
def test_json_in_other_encodings_is_refused(body: bytes) -> None:
    assert code_of(binary(body=body, content_type=JSON)) == "bad-json"
