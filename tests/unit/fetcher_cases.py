"""Whole job events made by the provider's own code, and one that tests take apart."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.records import record_of
from inbox.demo.jobs import Job, Sender
from inbox.fetcher import FetcherVerifier, JobEventRefused, sign

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "fetcher_vectors.json").read_text())
DELIVERIES: dict[str, dict[str, Any]] = {each["id"]: each for each in VECTORS["deliveries"]}
KEYS = {each["id"]: each["derived"]["external_hmac_hex"] for each in VECTORS["keys"]}

EXCHANGE = "fetcher.job.events"
TENANT = "single-tenant"
NOW = 1_782_397_201.5
JOB_ID = "01979c3a-7c1e-7b52-9a53-3f6d1c2b4e5f"
KEY = bytes(range(32))
SENDER = Sender(EXCHANGE, TENANT, KEY)
NEWER = Sender(EXCHANGE, TENANT, KEY, "studio.lerian.fetcher")


def body_of(name: str) -> bytes:
    """A body by its name, made by its recipe where it is large."""
    made = _made(VECTORS["bodies"][name])
    assert len(made) == VECTORS["bodies"][name]["length"]
    return made


def _made(recipe: dict[str, Any]) -> bytes:
    if "concat" in recipe:
        return b"".join(map(_made, recipe["concat"]))
    if "repeat" in recipe:
        return str(recipe["repeat"]).encode() * int(recipe["times"])
    return bytes.fromhex(recipe["hex"]) if "hex" in recipe else str(recipe["utf8"]).encode()


def header_of(given: dict[str, Any]) -> object:
    """A header's value as aio-pika hands it over."""
    if given["amqp"] == "x":
        return bytearray.fromhex(given["value_hex"])
    value: Any = given["value"]
    if given["amqp"] == "T":
        return datetime.fromtimestamp(value, UTC)
    return float(value) if given["amqp"] == "d" else value


def delivery_of(name: str) -> Delivery:
    """A delivery of the provider's by its name."""
    given = DELIVERIES[name]
    return Delivery(
        body=body_of(given["body"]),
        headers={header: header_of(value) for header, value in given["headers"].items()},
        content_type="application/json",
        origin=Origin(given["exchange"], given["routing_key"]),
        queue="q",
    )


def verifier_of(name: str, **settings: Any) -> FetcherVerifier:
    """A verifier as the delivery `name` is to be judged: by its own route and key, and by the clock that it names."""
    given = DELIVERIES[name]
    return FetcherVerifier(
        KEYS[given["key"]],
        **{
            "routes": ["origin"],
            "max_age": given["max_age_s"],
            "max_future": given["max_future_s"],
            "allow_1x": given.get("allow_legacy_body_only", False),
            "clock": lambda: given["now_unix_ms"] / 1000,
            **settings,
        },
    )


async def outcome(verifier: FetcherVerifier, delivery: Delivery) -> tuple[str, str]:
    """The verdict and its reason; as the engine has it, the event is decoded before it is verified."""
    try:
        await verifier.verify(delivery, decode(delivery))
    except JobEventRefused as refusal:
        return refusal.code, refusal.reason
    return "accepted", ""


# ---------------------------------------------------------------- one to take apart
def make(body: bytes | None = None, *, sender: Sender = SENDER, now: float = NOW, **members: Any) -> Delivery:
    """A genuine delivery: of this body, or of the plain one with these members changed; None takes one out."""
    if body is None:
        plain = {**json.loads(body_of("completed-typical")), **members}
        body = json.dumps({name: value for name, value in plain.items() if value is not None}).encode()
    said = json.loads(body)
    job = Job(said.get("jobId", said.get("job_id", "")), said["status"], body)
    encoded = sender.encoded(job, now)
    return Delivery(
        encoded.body, encoded.headers, "application/json", origin=Origin(sender.exchange, job.routing_key), queue="q"
    )


def with_headers(delivery: Delivery, **headers: object) -> Delivery:
    """`delivery` with other headers: `ce_id` is `ce-id`, and None takes one out."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = {name: value for name, value in {**delivery.headers, **named}.items() if value is not None}
    return replace(delivery, headers=kept)


def resigned(delivery: Delivery, body: bytes, *, line: str = "") -> Delivery:
    """`delivery` with another body, and with the signature that its producer would give it."""
    signature = sign(
        KEY,
        body,
        timestamp=int(NOW),
        tenant=TENANT,
        job_id=line,
        exchange=delivery.origin.exchange,
        routing_key=delivery.origin.routing_key,
    )
    return replace(with_headers(delivery, x_message_signature=signature), body=body)


def event_of(delivery: Delivery) -> Event:
    """The event of a delivery that nobody verified: for what comes after."""
    cloudevent: CloudEvent = decode(delivery)
    return Event(cloudevent, record_of("c", cloudevent, "id", None), delivery.origin)
