"""The `cloudevents` SDK as oracle where it is right, and the list of where it is not."""

import json
from datetime import datetime
from typing import Any

import pytest
from cloudevents.core.bindings.rabbitmq import (
    RabbitMQMessage,
    from_rabbitmq_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.v1.event import CloudEvent as SdkEvent

from inbox.core.cloudevents import Encoded, Mode, decode, encode
from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent, strict_json
from tests.unit.cloudevents_cases import FETCHER_SHAPES, JSON, REQUIRED, code_of, fetcher

HEADERS = {name: str(value) for name, value in REQUIRED.items()} | {"ce-time": "2026-01-02T03:04:05.5Z"}


def by_sdk(headers: dict[str, Any], body: bytes = b"", content_type: str | None = None) -> SdkEvent:
    return from_rabbitmq_event(RabbitMQMessage(headers, content_type, body))


def common(event: CloudEvent) -> tuple[dict[str, Any], Any]:
    """`event` in the SDK's form: attributes by name, data parsed where it is JSON."""
    named = {
        "specversion": event.specversion,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "time": event.time,
        "subject": event.subject,
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
        **event.extensions,
    }
    data = strict_json(event.data) if event.data and event.datacontenttype == JSON else event.data
    return {name: value for name, value in named.items() if value is not None}, data


def text_headers(delivery: Delivery) -> dict[str, Any]:
    """Without the second `datacontenttype` and with texts, for the SDK takes nothing else."""
    return {
        name: value.decode() if isinstance(value, bytearray) else value
        for name, value in delivery.headers.items()
        if name != "ce-datacontenttype"
    }


@pytest.mark.parametrize("shape", FETCHER_SHAPES)
def test_a_genuine_message_is_the_same_event_to_both(shape: str) -> None:
    delivery = fetcher(shape)
    theirs = by_sdk(text_headers(delivery), delivery.body, delivery.content_type)
    assert common(decode(delivery)) == (theirs.get_attributes(), theirs.get_data())


@pytest.mark.parametrize("shape", FETCHER_SHAPES)
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_sdk_reads_what_is_written_here(shape: str, mode: Mode) -> None:
    event = decode(fetcher(shape))
    encoded: Encoded = encode(event, mode)
    theirs = by_sdk(dict(encoded.headers), encoded.body, encoded.content_type)
    assert common(event) == (theirs.get_attributes(), theirs.get_data())


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
@pytest.mark.parametrize("data", [{"a": [1, "é", None]}, [1], 5])
def test_what_the_sdk_writes_is_read_here(write: Any, data: Any) -> None:
    time = datetime.fromisoformat("2026-01-02T03:04:05.678901+02:00")
    attributes = {"id": "é1", "source": "/s", "type": "t", "specversion": "1.0", "time": time, "datacontenttype": JSON}
    theirs = SdkEvent({**attributes, "subject": "x", "ext": "y"}, data)
    message = write(theirs)
    event = decode(Delivery(message.body, message.headers, message.content_type))
    assert common(event) == (theirs.get_attributes(), data)


def test_the_sdk_invents_an_id() -> None:
    headers = {name: value for name, value in HEADERS.items() if name != "ce-id"}
    assert by_sdk(headers).get_id() != by_sdk(headers).get_id()
    assert code_of(Delivery(b"", headers)) == "missing-id"


def test_the_sdk_invents_a_time() -> None:
    headers = {name: value for name, value in HEADERS.items() if name != "ce-time"}
    assert by_sdk(headers).get_time() is not None
    assert decode(Delivery(b"", headers)).time is None


def test_the_sdk_takes_the_last_of_two_spellings() -> None:
    headers = HEADERS | {"Ce-Id": "2"}
    assert by_sdk(headers).get_id() == "2"
    assert code_of(Delivery(b"", headers)) == "ambiguous-attributes"


def test_the_sdk_makes_broken_json_a_text() -> None:
    assert by_sdk(HEADERS, b'{"a":', JSON).get_data() == '{"a":'
    assert code_of(Delivery(b'{"a":', HEADERS, JSON)) == "bad-json"


@pytest.mark.parametrize("body", [b'{"a":NaN}', b'{"a":1,"a":1}'])
def test_the_sdk_accepts_nan_and_duplicate_keys(body: bytes) -> None:
    assert "a" in str(by_sdk(HEADERS, body, JSON).get_data())
    assert code_of(Delivery(body, HEADERS, JSON)) == "bad-json"


def test_the_sdk_makes_ascii_octets_a_text() -> None:
    assert by_sdk(HEADERS, b"plain", "application/octet-stream").get_data() == "plain"
    assert decode(Delivery(b"plain", HEADERS, "application/octet-stream")).data == b"plain"


def test_the_sdk_compares_media_types_with_case() -> None:
    assert by_sdk(HEADERS, b"{}", "Application/JSON").get_data() == "{}"
    assert code_of(Delivery(b"{", HEADERS, "Application/JSON")) == "bad-json"


def test_the_sdk_does_not_read_the_amqp_prefix() -> None:
    headers = {name.replace("ce-", "cloudEvents:"): value for name, value in HEADERS.items()}
    with pytest.raises(CloudEventValidationError):
        by_sdk(headers)
    assert decode(Delivery(b"", headers)).id == "1"


def test_the_sdk_does_not_read_octets() -> None:
    headers: dict[str, Any] = HEADERS | {"ce-id": bytearray(b"1")}
    with pytest.raises(CloudEventValidationError):
        by_sdk(headers)
    assert decode(Delivery(b"", headers)).id == "1"


def test_the_sdk_does_not_look_at_values() -> None:
    headers = HEADERS | {"ce-source": "two words", "ce-subject": "a\nb", "ce-dataschema": "relative"}
    assert by_sdk(headers).get_source() == "two words"
    assert code_of(Delivery(b"", headers)) == "bad-attribute"


def test_the_sdk_writes_a_string_as_json_without_quotes() -> None:
    theirs = SdkEvent({"id": "1", "source": "/s", "type": "t", "specversion": "1.0", "datacontenttype": JSON}, "text")
    message = to_binary_event(theirs)
    assert message.body == b"text"
    assert code_of(Delivery(message.body, message.headers, message.content_type)) == "bad-json"


def test_the_sdk_rewrites_structured_json() -> None:
    body = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1,"a":1.0}}'
    assert json.loads(to_structured_event(by_sdk({}, body, "application/cloudevents+json")).body)["data"] == {"a": 1.0}
    assert code_of(Delivery(body, {}, "application/cloudevents+json")) == "bad-json"
