"""Binary mode: headers, prefixes, content type, payload."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import Event
from inbox.core.records import InboxRecord
from inbox.errors import Undecodable
from tests.unit.cloudevents_cases import FETCHER_SHAPES, JSON, REQUIRED, attribute, binary, code_of, fetcher


@pytest.mark.parametrize("shape", FETCHER_SHAPES)
@pytest.mark.parametrize("octets", [bytes, bytearray, memoryview, bytes.decode])
def test_a_genuine_message_is_the_same_event_from_every_client_library(shape: str, octets: type) -> None:
    delivery = fetcher(shape, octets)
    event = decode(delivery)
    assert event == decode(fetcher(shape))
    assert event.id == f"fetcher.{delivery.origin.routing_key}.{event.subject}"
    assert event.data == delivery.body


def test_a_genuine_message_in_full() -> None:
    event = decode(fetcher("completed"))
    assert event.source == "//lerian.fetcher/worker"
    assert event.type == "studio.lerian.job.completed"
    assert event.time_text == "2026-07-02T08:15:30.123456789Z"
    assert event.datacontenttype == JSON
    assert event.dataschema is None
    assert event.extensions == {
        "schemaversion": "1.0.0",
        "resourcetype": "job",
        "eventtype": "completed",
        "tenantid": "single-tenant",
    }


def test_a_repr_shows_nothing_of_the_event() -> None:
    assert repr(decode(fetcher("completed"))) == "<CloudEvent with data>"


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_a_required_attribute_that_is_absent_void_or_empty_is_refused(name: str) -> None:
    assert code_of(binary(without=f"ce-{name}")) == f"missing-{name}"
    assert code_of(binary({f"ce-{name}": None})) == f"missing-{name}"
    assert code_of(binary({f"ce-{name}": bytearray()})) == f"missing-{name}"


@pytest.mark.parametrize("version", ["0.3", "1.0.2", "1.1", "2.0", " 1.0"])
def test_only_version_1_0_is_read(version: str) -> None:
    assert code_of(binary({"ce-specversion": version})) == "unsupported-specversion"


def test_a_message_without_attribute_headers_is_no_cloudevent() -> None:
    assert code_of(Delivery(b"{}", {"x-retry-count": 0, "ce": "1", "cloudEvents": "2"}, JSON)) == "no-cloudevent"


@pytest.mark.parametrize("header", ["Ce-Subject", "CE-SUBJECT", "ce-sUBJECT"])
def test_a_capitalised_name_is_read_when_it_is_alone(header: str) -> None:
    assert decode(binary({header: "x"})).subject == "x"


@pytest.mark.parametrize(
    "header", ["ce-", "ce-trace-id", "ce-data", "ce-data_base64", "ce-é", "ce-\u212aind", "ce-a b"]
)
def test_a_name_that_no_attribute_may_have_is_refused_and_not_repeated(header: str) -> None:
    with pytest.raises(Undecodable, match=r"bad-attribute: a header whose name no attribute may have$"):
        decode(binary({header: "x"}))


def test_a_refusal_names_the_attribute_and_never_its_value() -> None:
    with pytest.raises(Undecodable) as refusal:
        attribute("subject", "secret\x00")
    assert refusal.value.detail == "subject holds a control character, a surrogate or a noncharacter"
    assert refusal.value.__cause__ is None


def test_an_overlong_name_is_not_repeated() -> None:
    with pytest.raises(Undecodable, match="an attribute with an overlong name is not text"):
        attribute("x" * 21, 1.5)


@pytest.mark.parametrize("value", ["", "text", 5, -(2**31), 2**31 - 1, True, False])
def test_an_extension_keeps_text_integer_and_boolean(value: object) -> None:
    kept = attribute("ext", value).extensions["ext"]
    assert kept == value
    assert type(kept) is type(value)


def test_an_extension_as_amqp_timestamp_becomes_its_canonical_text() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    assert attribute("expirytime", moment).extensions == {"expirytime": "2026-01-02T01:04:05Z"}


def test_a_void_extension_is_absent() -> None:
    assert attribute("ext", None).extensions == {}


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1.5, b"\xff", ["x"], {"x": 1}, "a\nb"])
def test_an_extension_of_any_other_kind_is_refused(value: object) -> None:
    assert code_of(binary({"ce-ext": value})) == "bad-attribute"


@pytest.mark.parametrize("name", ["time", "expirytime"])
def test_a_timestamp_without_a_zone_is_refused(name: str) -> None:
    assert code_of(binary({f"ce-{name}": datetime(2026, 1, 1)})) == "bad-time"  # noqa: DTZ001 - the case


@pytest.mark.parametrize("name", ["subject", "datacontenttype", "dataschema"])
def test_an_optional_text_may_be_absent_or_void_but_not_empty(name: str) -> None:
    assert getattr(attribute(name, None), name) is None
    assert code_of(binary({f"ce-{name}": ""})) == "bad-attribute"


def test_the_content_type_is_the_datacontenttype() -> None:
    assert decode(binary(content_type="text/plain; charset=latin1")).datacontenttype == "text/plain; charset=latin1"


@pytest.mark.parametrize("content_type", [None, ""])
def test_a_header_serves_where_the_property_is_not_set(content_type: str | None) -> None:
    delivery = binary({"ce-datacontenttype": bytearray(b"application/json")}, body=b"{", content_type=content_type)
    assert code_of(delivery) == "bad-json"


@pytest.mark.parametrize(
    ("header", "content_type"),
    [
        ("application/json", "application/json"),
        (bytearray(b"application/json"), "Application/JSON"),
        ("application/json;charset=utf-8", 'application/json; charset="UTF-8"'),
        (None, "application/json"),
    ],
)
def test_property_and_header_may_say_the_same(header: object, content_type: str) -> None:
    event = decode(binary({"ce-datacontenttype": header}, content_type=content_type))
    assert event.datacontenttype == content_type


@pytest.mark.parametrize("header", ["text/plain", "application/json; charset=utf-8"])
def test_property_and_header_must_not_contradict_each_other(header: str) -> None:
    assert code_of(binary({"ce-datacontenttype": header}, content_type=JSON)) == "ambiguous-attributes"


@pytest.mark.parametrize("header", [7, "\x00", "json"])
def test_a_header_that_is_no_media_type_is_refused_beside_the_property(header: object) -> None:
    assert code_of(binary({"ce-datacontenttype": header}, content_type=JSON)) == "bad-attribute"


def test_an_empty_body_is_no_data() -> None:
    assert decode(binary(content_type=JSON)).data is None


def test_a_body_that_declares_nothing_is_not_looked_into() -> None:
    assert decode(binary(body=b"{")).data == b"{"


def test_the_json_check_can_be_left_to_the_handler() -> None:
    assert decode(binary(body=b"{", content_type=JSON), check_json=False).data == b"{"


def test_headers_of_others_are_ignored() -> None:
    others: dict[str, object] = {
        "t": 1.5,
        "X-Tenant-ID": b"\xff",
        "x-death": [{}],
        "traceparent": "a",
        "Traceparent": "b",
    }
    assert decode(Delivery(b"", {**REQUIRED, **others})) == decode(binary())


def test_json_that_was_checked_is_not_parsed_again_and_nobody_gets_what_another_may_have_changed() -> None:
    cloudevent = decode(binary(body=b'{"n": 1}', content_type=JSON))
    event = Event(cloudevent, InboxRecord("c", b"1"), Origin("", ""))
    first, second = event.json(), event.json()
    assert first == second == {"n": 1}
    assert first is not second
    assert replace(cloudevent, data=b"[]").parsed == []


def test_data_that_a_copy_has_instead_is_read_from_the_copy() -> None:
    cloudevent = replace(decode(binary(body=b'{"n": 1}', content_type=JSON)), data=b"[2]")
    assert Event(cloudevent, InboxRecord("c", b"1"), Origin("", "")).json() == [2]
