"""What of an event becomes a task's result over a leased subscription, and what is refused with what to write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from inbox import CloudEvent, ConfigurationError, Delivery
from inbox.adapters.websocket import TaskEvent, delivery_from
from inbox.core.cloudevents import decode
from inbox.testing.lab.events import Message, message_of, read_events
from inbox.testing.lab.results import result_of

SUBSCRIPTION = "5" * 32
SOURCE = f"orbit:subscription/{SUBSCRIPTION}"
TASK = "7" * 32
EVENT: dict[str, Any] = {
    "id": "1" * 32,
    "type": "task.succeeded",
    "data": {"task_id": TASK, "status": "succeeded", "pages": 3},
}
GIVEN = message_of(EVENT)


def made(**changes: object) -> Message:
    """Of the event above; a value of None leaves a member out."""
    members = {name: value for name, value in (EVENT | changes).items() if value is not None}
    return result_of(message_of(members), SUBSCRIPTION)


def test_a_result_is_what_a_handler_gets_from_the_platform() -> None:
    message = made(time="2030-01-02T03:04:05.678Z")
    sent = TaskEvent("1" * 32, "task.succeeded", SUBSCRIPTION, 1, "2030-01-02T03:04:05.678Z", message.body, TASK, "")
    arrives = decode(delivery_from(sent))
    assert message.event is not None
    assert {**arrives.extensions} == {"sequence": "1"}
    for name in ("id", "source", "type", "subject", "time_text", "datacontenttype", "data"):
        assert getattr(message.event, name) == getattr(arrives, name), name
    assert message.key("id") == b"1" * 32


def test_the_data_is_the_snapshot_octet_for_octet() -> None:
    snapshot = f'{{ "task_id": "{TASK}", "n": 9007199254740993, "f": 1.10, "status":"succeeded"}}'
    line = f'{{"specversion":"1.0","id":"{"1" * 32}","source":"/lab","type":"task.succeeded","data": {snapshot} }}'
    assert result_of(message_of(line), SUBSCRIPTION).body == snapshot.encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"source": SOURCE},
        {"source": "orbit:subscription/" + "9" * 32},
        {"subject": TASK},
        {"sequence": "17"},
        {"time": "2030-01-02T03:04:05Z"},
        {"datacontenttype": "application/json"},
        {"type": "task.needs_review", "data": {"task_id": TASK, "status": "needs_review"}},
    ],
)
def test_what_the_platform_would_say_may_be_said(changes: dict[str, object]) -> None:
    message = made(**changes)
    assert message.event is not None
    assert (message.event.source, message.event.subject, message.event.extensions) == (SOURCE, TASK, {})
    assert result_of(message, SUBSCRIPTION) == message, "it is one already"


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"id": "order-1"}, "id: the platform's ids are 32 small hexadecimal digits; write such a one, for example"),
    ({"id": "A" * 32}, "id: "),
    ({"type": "order.paid"}, "type: the platform's are task.succeeded, task.failed, task.cancelled, task.needs_review"),
    ({"source": "/shop"}, "source: it is the subscription's, orbit:subscription/…; write that, or /lab"),
    ({"subject": "order"}, "subject: it is the task_id of the data; leave it out"),
    ({"time": "2030-01-02T03:04:05+01:00"}, "time: the platform's is in UTC, such as 2030-01-01T00:00:00.000Z"),
    ({"dataschema": "https://example.com/s"}, "dataschema: the platform sends none; leave it out"),
    ({"tenant": "a", "sequence": "1"}, "extensions: the platform sends none but sequence, and counts that itself"),
    ({"datacontenttype": "text/plain", "data": "x"}, "datacontenttype: a result is JSON"),
    ({"data": None}, "data: the snapshot is not JSON; write a JSON object"),
    ({"data": []}, "data: the snapshot is not an object with a task_id"),
    ({"data": {"task_id": "1", "status": "succeeded"}}, "data: it cannot be delivered"),
    ({"data": {"task_id": TASK}}, '"task_id": "…", 32 small hexadecimal digits, and "status": "succeeded"'),
    ({"data": {"task_id": TASK, "status": "failed"}}, '"status": "succeeded"'),
    ({"data": {"task_id": TASK, "status": "succeeded", "x": "x" * 600_000}}, "data: it cannot be delivered"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_no_platform_says_is_refused_with_what_to_write(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        made(**changes)


def test_an_id_that_is_offered_for_another_one_is_always_the_same() -> None:
    offered = set()
    for _ in range(2):
        with pytest.raises(ConfigurationError) as refused:
            made(id="order-1")
        offered.update(re.findall("[0-9a-f]{32}", str(refused.value)))
    (example,) = offered
    assert made(id=example).event is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (message_of(Delivery(b"junk", {}, "text/plain")), "this is no CloudEvent"),
        (message_of(EVENT, exchange="jobs"), "exchange, routing key: a leased subscription has neither"),
        (message_of(EVENT, routing_key="jobs"), "exchange, routing key: a leased subscription has neither"),
        (
            message_of(Delivery(GIVEN.body, {**GIVEN.headers, "x-tenant": "a"}, GIVEN.content_type)),
            "headers: the platform sends none but an event's own; leave out x-tenant",
        ),
    ],
)
def test_what_has_no_place_in_a_frame_is_refused(given: Message, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        result_of(given, SUBSCRIPTION)


def test_a_delivery_of_the_platforms_may_be_given_as_it_came() -> None:
    snapshot = json.dumps(EVENT["data"]).encode()
    came = TaskEvent("1" * 32, "task.succeeded", SUBSCRIPTION, 3, "2030-01-02T03:04:05.678Z", snapshot, TASK, "")
    message = result_of(message_of(delivery_from(came)), SUBSCRIPTION)
    assert (message.body, message.headers["ce-id"]) == (snapshot, "1" * 32)


def test_a_line_that_is_refused_is_named(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    lines = [{"specversion": "1.0", "source": "/lab", **EVENT, "id": id_} for id_ in ("1" * 32, "order-2")]
    file.write_text("\n\n".join(map(json.dumps, lines)))
    with pytest.raises(ConfigurationError, match="line 3: id: "):
        read_events(file, fit=lambda message: result_of(message, SUBSCRIPTION))


def test_an_event_of_a_program_may_be_given() -> None:
    snapshot = json.dumps(EVENT["data"]).encode()
    event = CloudEvent("1" * 32, "/lab", "task.succeeded", datacontenttype="application/json", data=snapshot)
    assert result_of(message_of(event), SUBSCRIPTION).body == snapshot
