"""Structured mode: the JSON event format."""

import base64

import pytest

from inbox.core.cloudevents import decode
from inbox.core.event import CloudEvent
from tests.unit.cloudevents_cases import JSON, code_of, structured

EVENT = '{"specversion":"1.0","id":"1","source":"/s","type":"t"'


@pytest.mark.parametrize(
    "content_type",
    [
        "application/cloudevents+json",
        "Application/CloudEvents+JSON; Charset=UTF-8",
        'application/cloudevents+json; charset="utf-8"; x=y',
    ],
)
def test_the_content_type_decides_in_any_case_and_with_parameters(content_type: str) -> None:
    assert decode(structured({}, content_type=content_type)) == CloudEvent("1", "/s", "t")


@pytest.mark.parametrize(
    "content_type",
    [
        "application/cloudevents",
        "application/cloudevents+avro",
        "application/cloudevents+json; charset=latin1",
        "application/cloudevents-batch+xml",
        "application/cloudevents+json; charset",
    ],
)
def test_other_formats_are_refused(content_type: str) -> None:
    assert code_of(structured({}, content_type=content_type)) == "unsupported-format"


def test_a_batch_is_refused_by_its_own_code() -> None:
    assert code_of(structured("[]", content_type="application/cloudevents-batch+json; charset=utf-8")) == "batch"


def test_all_attributes_are_read() -> None:
    members = {
        "time": "2026-01-02T03:04:05.1Z",
        "subject": "x",
        "dataschema": "u:v",
        "flag": True,
        "count": -5,
        "text": "é",
    }
    event = decode(structured(members))
    assert event.time_text == "2026-01-02T03:04:05.1Z"
    assert (event.subject, event.dataschema) == ("x", "u:v")
    assert event.extensions == {"flag": True, "count": -5, "text": "é"}
    assert event.data is None
    assert event.datacontenttype is None


def test_null_is_absent() -> None:
    members = {
        "time": None,
        "subject": None,
        "datacontenttype": None,
        "dataschema": None,
        "ext": None,
        "data_base64": None,
    }
    assert decode(structured(members)) == CloudEvent("1", "/s", "t")
    assert code_of(structured({"id": None})) == "missing-id"


@pytest.mark.parametrize(
    "body",
    [
        "",
        " ",
        "null",
        "[]",
        '"x"',
        "{",
        "{}}",
        "{} {}",
        EVENT,
        EVENT + ",}",
        EVENT + '}"',
        EVENT + '"a":1}',
        EVENT + ',"a"}',
        EVENT + ',"a":}',
        EVENT + ',"a":01}',
        EVENT + ",1:2}",
        EVENT + ",null:2}",
        EVENT + ",[]:2}",
        EVENT + ',"a":NaN}',
        EVENT + ',"data":[Infinity]}',
        EVENT + ',"id":"1"}',
        EVENT + ',"data":{"a":1,"a":2}}',
        EVENT + ',"a":"\x01"}',
        EVENT + ',"data":' + "[" * 100_000 + "}",
        EVENT + ',"data":' + "9" * 5_000 + "}",
        "\ufeff" + EVENT + "}",
        EVENT.encode() + b',"a":"\xff"}',
        (EVENT + "}").encode("utf-16"),
    ],
)
def test_what_is_not_one_strict_json_object_is_refused(body: str | bytes) -> None:
    assert code_of(structured(body)) == "bad-json"


@pytest.mark.parametrize("body", ["{}", " { } "])
def test_an_empty_object_lacks_everything(body: str) -> None:
    assert code_of(structured(body)) == "missing-specversion"


def test_space_is_allowed_where_json_allows_it() -> None:
    assert decode(structured(' \t\r\n{ "specversion" : "1.0" ,\n"id":"1","source":"/s","type":"t" } \n')).id == "1"


@pytest.mark.parametrize("name", ["Id", "trace-id", "é", "", "data_", "a_b"])
def test_a_name_that_no_attribute_may_have_is_refused(name: str) -> None:
    assert code_of(structured({name: "x"})) == "bad-attribute"


@pytest.mark.parametrize("value", [1.0, 1e3, [1], {"a": 1}, 2**31, "\ud800", "\n", "\ufffe"])
def test_a_value_that_no_attribute_may_have_is_refused(value: object) -> None:
    assert code_of(structured({"ext": value})) == "bad-attribute"


@pytest.mark.parametrize("name", ["id", "source", "type", "subject", "datacontenttype", "dataschema", "time"])
def test_a_text_must_be_a_string(name: str) -> None:
    assert code_of(structured({name: 1})) == "bad-attribute"


@pytest.mark.parametrize(
    "source",
    [
        '{ "b" : 1.0, "a":[ 12345678901234567890 ], "c":"\\u00e9\\/ é" }',
        "null",
        '"I\'m just a string"',
        "-0",
        "1e400",
        "[]",
        '"\\ud800"',
    ],
)
@pytest.mark.parametrize("declared", [None, JSON, "application/vnd.x+json"])
def test_json_data_keeps_its_exact_source_text(source: str, declared: str | None) -> None:
    content = f',"datacontenttype":"{declared}"' if declared else ""
    event = decode(structured(f'{EVENT}{content} , "data" : {source} }}'))
    assert event.data == source.encode()
    assert event.datacontenttype == (declared or JSON)  # absent means application/json


def test_absent_datacontenttype_with_data_means_json() -> None:
    assert decode(structured({"data": 1})).datacontenttype == JSON
    assert decode(structured({"data": 1, "datacontenttype": None})).datacontenttype == JSON


def test_text_data_becomes_utf8() -> None:
    event = decode(structured({"data": '<much wow="xmlé"/>', "datacontenttype": "application/xml"}))
    assert event.data == '<much wow="xmlé"/>'.encode()


@pytest.mark.parametrize("data", [1, None, {"a": 1}, "\ud800"])
def test_data_that_is_no_text_is_refused_where_text_is_declared(data: object) -> None:
    assert code_of(structured({"data": data, "datacontenttype": "text/plain"})) == "bad-data"


def test_text_of_another_charset_is_refused() -> None:
    assert code_of(structured({"data": "x", "datacontenttype": "text/plain; charset=latin1"})) == "bad-data"


@pytest.mark.parametrize("declared", [None, "application/octet-stream", "text/plain"])
def test_base64_data_becomes_its_octets(declared: str | None) -> None:
    octets = bytes(range(256))
    event = decode(structured({"data_base64": base64.b64encode(octets).decode(), "datacontenttype": declared}))
    assert event.data == octets
    assert event.datacontenttype == declared


@pytest.mark.parametrize("value", [1, [], "QQ", "QQ==QQ==", "Q Q=", "QQ==\n", "é", "_-8="])
def test_what_is_not_base64_is_refused(value: object) -> None:
    assert code_of(structured({"data_base64": value})) == "bad-data"


def test_base64_data_that_declares_json_is_checked() -> None:
    members = {"data_base64": base64.b64encode(b'{"a":').decode(), "datacontenttype": JSON}
    assert code_of(structured(members)) == "bad-json"
    assert decode(structured(members), check_json=False).data == b'{"a":'
    good = decode(structured({"data_base64": base64.b64encode(b" {} ").decode(), "datacontenttype": JSON}))
    assert good.data == b" {} "


@pytest.mark.parametrize("members", [{"data_base64": ""}, {"data": "", "datacontenttype": "text/plain"}])
def test_an_empty_payload_is_no_data(members: dict[str, object]) -> None:
    assert decode(structured(members)).data is None


def test_data_in_both_members_is_refused() -> None:
    assert code_of(structured({"data": 1, "data_base64": "QQ=="})) == "bad-data"
    assert code_of(structured({"data": None, "data_base64": "QQ=="})) == "bad-data"
    assert decode(structured({"data": 1, "data_base64": None})).data == b"1"


@pytest.mark.parametrize("declared", [1, "json", "\x00"])
def test_a_broken_datacontenttype_is_refused_before_the_data_is_read(declared: object) -> None:
    assert code_of(structured({"data": 1, "datacontenttype": declared})) == "bad-attribute"


def test_headers_may_repeat_the_attributes() -> None:
    headers = {"cloudEvents_id": bytearray(b"1"), "cloudEvents_type": "t", "cloudEvents_other": "ignored", "x": 1}
    assert decode(structured({}, headers)) == CloudEvent("1", "/s", "t")


@pytest.mark.parametrize("headers", [{"ce-id": "2"}, {"ce-source": "/S"}, {"ce-type": 1}, {"ce-id": "1", "Ce-Id": "1"}])
def test_headers_that_name_another_event_are_refused(headers: dict[str, object]) -> None:
    assert code_of(structured({}, headers)) == "ambiguous-attributes"
