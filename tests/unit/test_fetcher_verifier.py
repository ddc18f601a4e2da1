"""Job events are accepted and refused as the provider's own code would, and bound to what was signed."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery, Origin
from inbox.errors import ConfigurationError, Undecodable
from inbox.fetcher import FetcherKeys, FetcherVerifier, InconsistentJobEvent, InvalidJobEvent, StaleJobEvent, sign
from inbox.fetcher.signature import body_only_head, mac, signed_head
from tests.unit.fetcher_cases import (
    DELIVERIES,
    EXCHANGE,
    JOB_ID,
    KEY,
    KEYS,
    NEWER,
    NOW,
    SENDER,
    TENANT,
    VECTORS,
    body_of,
    delivery_of,
    make,
    outcome,
    resigned,
    verifier_of,
    with_headers,
)

#: What is not accepted, and why; every other delivery of the provider's is.
EXPECTED = {
    "v-age-300.5s": ("stale", "too-old"),
    "v-stale-one-hour": ("stale", "too-old"),
    "v-future-30.5s": ("stale", "in-the-future"),
    "v-missing-signature": ("invalid", "missing-signature"),
    "v-missing-timestamp": ("invalid", "missing-timestamp"),
    "v-missing-version": ("invalid", "missing-version"),
    "v-version-v2": ("invalid", "unsupported-version"),
    "v-version-upper-case": ("invalid", "unsupported-version"),
    "v-signed-as-v2": ("invalid", "unsupported-version"),
    "v-t-amqp-timestamp": ("invalid", "bad-timestamp"),
    "v-t-float": ("invalid", "bad-timestamp"),
    "v-t-bool": ("invalid", "bad-timestamp"),
    "v-t-void": ("invalid", "bad-timestamp"),
    "v-t-underscore": ("invalid", "bad-timestamp"),
    "v-t-space": ("invalid", "bad-timestamp"),
    "v-t-fullwidth-digits": ("invalid", "bad-timestamp"),
    "v-t-decimal": ("invalid", "bad-timestamp"),
    "v-t-rfc3339": ("invalid", "bad-timestamp"),
    "v-t-hex": ("invalid", "bad-timestamp"),
    "v-t-empty": ("invalid", "bad-timestamp"),
    "v-t-overflow": ("invalid", "bad-timestamp"),
    "v-t-plus-sign": ("invalid", "bad-timestamp"),
    "v-t-leading-zeros": ("invalid", "bad-timestamp"),
    "v-tenant-with-newline": ("invalid", "control-character"),
    "v-tenant-invalid-utf8": ("invalid", "bad-header"),
    "v-ce-id-changed-only": ("inconsistent", "ce-id"),
    "v-ce-tenant-changed-only": ("inconsistent", "tenant"),
    "v-signed-status-contradicts-route": ("inconsistent", "route"),
}


def verifier(**settings: Any) -> FetcherVerifier:
    return FetcherVerifier([KEY], **{"clock": lambda: NOW, **settings})


# ---------------------------------------------------------------- the provider's own
@pytest.mark.parametrize("name", DELIVERIES)
async def test_a_delivery_of_the_providers_has_its_verdict_and_its_reason(name: str) -> None:
    given = DELIVERIES[name]
    told = await outcome(verifier_of(name), delivery_of(name))

    if name in EXPECTED:
        assert told == EXPECTED[name]
    else:
        assert told == (("accepted", "") if given["valid"] else ("invalid", "signature"))
    # What the provider says of it: the signature, and beside it the binding.
    assert given["valid"] == (told[0] in {"accepted", "inconsistent"})
    if given["valid"]:
        assert given.get("binding", "ok") == (told[1] or "ok")


@pytest.mark.parametrize("vector", VECTORS["message_signatures"], ids=lambda vector: vector["id"])
def test_the_octets_that_are_signed_and_their_signature_are_the_providers(vector: dict[str, Any]) -> None:
    body, key = body_of(vector["body"]), bytes.fromhex(KEYS[vector["key"]])
    job_line, exchange, routing_key = vector["job_id_line"], vector["exchange"], vector["routing_key"]
    head = signed_head(vector["timestamp"], vector["tenant"], job_line, exchange, routing_key)
    assert head.hex() == vector["signed_prefix_hex"]
    signature = sign(
        key,
        body,
        timestamp=vector["timestamp"],
        tenant=vector["tenant"],
        job_id=job_line,
        exchange=exchange,
        routing_key=routing_key,
    )
    assert signature == vector["signature"]


async def test_what_other_client_libraries_hand_over_is_judged_alike() -> None:
    given = delivery_of("v-completed")
    for kind in (bytes, memoryview):
        headers = {
            name: kind(value) if isinstance(value, bytearray) else value for name, value in given.headers.items()
        }
        assert await outcome(verifier_of("v-completed"), replace(given, headers=headers)) == ("accepted", "")


@pytest.mark.parametrize("timestamp", [-1, 1 << 63, "9223372036854775808", "9999999999999999999", "-1", b"-0"])
async def test_a_time_that_63_bits_do_not_hold_is_none(timestamp: object) -> None:
    assert await outcome(verifier(), with_headers(make(), t=timestamp)) == ("invalid", "bad-timestamp")


# ---------------------------------------------------------------- keys
async def test_while_keys_rotate_both_are_taken() -> None:
    old, new = bytes(32), bytes([1]) * 32
    given = make(sender=replace(SENDER, key=old))
    assert await outcome(FetcherVerifier([new, old], clock=lambda: NOW), given) == ("accepted", "")
    assert await outcome(FetcherVerifier([new], clock=lambda: NOW), given) == ("invalid", "signature")


# ---------------------------------------------------------------- routes
DIED = {"x_first_death_exchange": EXCHANGE, "x_first_death_queue": "q", "x_first_death_reason": "rejected"}
MOVED = replace(make(), origin=Origin("", "parking"))


@pytest.mark.parametrize(
    ("delivery", "settings", "verdict"),
    [
        (make(), {}, "accepted"),
        (make(), {"exchange": "elsewhere"}, "accepted"),  # as it says of itself; the HMAC decides
        (make(), {"routes": ["configured"]}, "invalid"),  # nothing says that it was moved
        (make(), {"routes": ["unrecorded"]}, "accepted"),
        (MOVED, {}, "invalid"),
        (MOVED, {"routes": ["origin", "unrecorded"]}, "accepted"),
        (MOVED, {"routes": ["origin", "unrecorded"], "exchange": "elsewhere"}, "invalid"),
        (with_headers(MOVED, **DIED), {}, "accepted"),
        (with_headers(MOVED, **DIED), {"routes": ["origin"]}, "invalid"),
        (with_headers(MOVED, **DIED), {"routes": ["first-death"], "exchange": "elsewhere"}, "accepted"),
        (with_headers(MOVED, x_first_death_exchange="elsewhere"), {}, "accepted"),  # by the configured one
        (with_headers(MOVED, x_first_death_exchange="elsewhere"), {"routes": ["origin", "first-death"]}, "invalid"),
        (with_headers(MOVED, x_first_death_exchange=7), {}, "invalid"),  # no text, so nothing of the broker's
        (with_headers(MOVED, x_first_death_exchange=bytearray(EXCHANGE.encode())), {}, "accepted"),
    ],
)
async def test_a_message_that_was_moved_is_verified_by_the_route_of_its_first_publish(
    delivery: Delivery, settings: dict[str, Any], verdict: str
) -> None:
    assert (await outcome(verifier(**settings), delivery))[0] == verdict


async def test_no_route_with_a_control_character_is_tried() -> None:
    """`a` and `b\\nc`, or `a\\nb` and `c`: the same octets would be signed for two routes."""
    sliding = replace(make(), origin=Origin(f"{EXCHANGE}\njob.completed", "x"))
    given = resigned(sliding, make().body, line=JOB_ID)
    assert await outcome(verifier(), given) == ("invalid", "control-character")
    assert await outcome(verifier(), with_headers(given, **DIED)) == ("invalid", "signature")


# ---------------------------------------------------------------- job lines
@pytest.mark.parametrize("line", [JOB_ID, ""])
async def test_the_later_body_is_taken_with_either_job_line(line: str) -> None:
    body = body_of("completed-snake-case")
    given = resigned(make(body, sender=NEWER), body, line=line)
    assert await outcome(verifier(), given) == ("accepted", "")


async def test_a_job_id_with_a_control_character_is_no_line() -> None:
    """The line that follows could be another one than was meant."""
    given = resigned(make(), b'{"jobId":"a\\nb","status":"completed"}', line="a\nb")
    assert await outcome(verifier(), given) == ("invalid", "signature")


@pytest.mark.parametrize("body", [b"not json", b"[1]", b"", b'{"a":NaN}', b"[" * 5000, b'{"jobId":"x\\ud800y"}'])
def test_a_body_that_is_no_json_is_signed_with_an_empty_line_and_still_no_event(body: bytes) -> None:
    given = resigned(make(), body)
    match = verifier().check_signature(given)
    with pytest.raises(InconsistentJobEvent):
        verifier().check_event(given, decode(make()), match)


# ---------------------------------------------------------------- freshness
async def test_stale_is_told_apart_from_invalid() -> None:
    old = make(now=NOW - 3600)
    assert await outcome(verifier(), old) == ("accepted", "")
    assert await outcome(verifier(max_age=300), old) == ("stale", "too-old")
    forged = with_headers(old, x_message_signature="0" * 64)
    assert await outcome(verifier(max_age=300), forged) == ("invalid", "signature")
    with pytest.raises(
        StaleJobEvent, match=r"^stale: too-old: authentic, and signed 3600\.500 s ago; max_age is 300 s$"
    ):
        await verifier(max_age=300).verify(old, decode(old))


async def test_a_time_ahead_is_refused_even_where_any_age_is_taken_unless_told_otherwise() -> None:
    ahead = make(now=NOW + 60)
    assert await outcome(verifier(), ahead) == ("stale", "in-the-future")
    assert await outcome(verifier(max_future=None), ahead) == ("accepted", "")
    assert await outcome(verifier(max_future=90), ahead) == ("accepted", "")


async def test_a_replay_is_exempt_from_freshness_only() -> None:
    replayed = replace(make(now=NOW - 3600), is_replay=True)
    assert await outcome(verifier(max_age=300), replayed) == ("accepted", "")
    forged = with_headers(replayed, x_message_signature="0" * 64)
    assert await outcome(verifier(max_age=300), forged) == ("invalid", "signature")


async def test_the_clock_is_the_real_one_by_itself() -> None:
    assert await outcome(FetcherVerifier([KEY], max_age=300), make(now=time.time())) == ("accepted", "")
    assert await outcome(FetcherVerifier([KEY], max_age=300), make(now=time.time() - 301)) == ("stale", "too-old")


# ---------------------------------------------------------------- binding
OTHER_JOB = "01979c3a-7c1e-7b52-9a53-3f6d1c2b4e60"


@pytest.mark.parametrize(
    ("delivery", "reason"),
    [
        (with_headers(make(), ce_id=f"fetcher.job.failed.{JOB_ID}"), "ce-id"),
        (with_headers(make(), ce_id=f"fetcher.job.completed.{JOB_ID.upper()}"), "ce-id"),
        (with_headers(make(), ce_subject=OTHER_JOB), "ce-subject"),
        (with_headers(make(), ce_subject=None), "ce-subject"),
        (with_headers(make(), ce_resourcetype="Job"), "ce-resourcetype"),
        (with_headers(make(), ce_resourcetype=None), "ce-resourcetype"),
        (with_headers(make(), ce_eventtype="failed"), "ce-eventtype"),
        (with_headers(make(), ce_type="studio.lerian.job.failed"), "ce-type"),
        (with_headers(make(), ce_type="audit.job.completed"), "ce-type"),
        (with_headers(make(), ce_tenantid=None), "tenant"),
        (with_headers(make(), ce_tenantid="other"), "tenant"),
        (with_headers(make(), ce_tenantid=7), "tenant"),
        (make(jobId=JOB_ID.upper()), "job-id"),
        (make(jobId=JOB_ID.replace("-", "")), "job-id"),
        (make(job_id=OTHER_JOB), "job-id"),
    ],
)
async def test_what_is_not_signed_is_bound_to_what_is(delivery: Delivery, reason: str) -> None:
    assert await outcome(verifier(), delivery) == ("inconsistent", reason)


@pytest.mark.parametrize("job_id", [None, 7, [JOB_ID]])
async def test_a_body_without_a_job_is_none(job_id: object) -> None:
    body = json.dumps({"jobId": job_id, "status": "completed"} if job_id else {"status": "completed"}).encode()
    given = resigned(make(), body)
    assert await outcome(verifier(), given) == ("inconsistent", "job-id")


@pytest.mark.parametrize("status", ["Completed", "queued", 7, [], None])
async def test_a_status_that_there_is_not_is_refused(status: object) -> None:
    body = json.dumps({"jobId": JOB_ID, "status": status}).encode()
    given = resigned(make(), body, line=JOB_ID)
    assert await outcome(verifier(), given) == ("inconsistent", "status")


async def test_an_event_in_another_wrapping_than_its_body_is_refused() -> None:
    """In structured mode the signed body would be the wrapping, and what a handler gets a part of it."""
    given = make()
    match = verifier().check_signature(given)
    event = replace(decode(given), data=b'{"other":1}')
    with pytest.raises(InconsistentJobEvent, match=r"^inconsistent: content-mode: "):
        verifier().check_event(given, event, match)
    with pytest.raises(Undecodable):
        await verifier().verify(given, decode(replace(given, content_type="application/cloudevents+json")))


async def test_both_generations_are_one_event() -> None:
    assert await outcome(verifier(), make(sender=NEWER)) == ("accepted", "")
    later = replace(SENDER, family="studio.next")
    assert await outcome(verifier(), make(sender=later)) == ("inconsistent", "ce-type")
    assert await outcome(verifier(families=["studio.next"]), make(sender=later)) == ("accepted", "")


async def test_a_body_that_names_its_job_twice_alike_is_taken() -> None:
    assert await outcome(verifier(), make(job_id=JOB_ID)) == ("accepted", "")


# ---------------------------------------------------------------- tenants and sources
@pytest.mark.parametrize(
    ("delivery", "tenant", "verdict"),
    [
        (make(), TENANT, ("accepted", "")),
        (make(), "other", ("inconsistent", "tenant")),
        (delivery_of("v-no-tenant-header"), "single-tenant", ("invalid", "signature")),
    ],
)
async def test_another_tenant_than_the_expected_one_is_refused(
    delivery: Delivery, tenant: str, verdict: tuple[str, str]
) -> None:
    assert await outcome(verifier(tenant=tenant), delivery) == verdict


async def test_an_event_without_a_tenant_is_none_of_the_expected_tenants() -> None:
    name = "v-no-tenant-header"
    assert await outcome(verifier_of(name), delivery_of(name)) == ("accepted", "")
    assert await outcome(verifier_of(name, tenant=TENANT), delivery_of(name)) == ("inconsistent", "tenant")
    added = with_headers(delivery_of(name), ce_tenantid=TENANT)
    assert await outcome(verifier_of(name), added) == ("inconsistent", "tenant")
    empty = replace(added, headers={**delivery_of(name).headers, "X-Tenant-ID": ""})
    assert await outcome(verifier_of(name), empty) == ("accepted", "")  # an absent line and an empty one are one line


async def test_sources_tell_deployments_apart() -> None:
    given = make()
    assert await outcome(verifier(sources=["//lerian.fetcher/worker", "fetcher"]), given) == ("accepted", "")
    assert await outcome(verifier(sources=["fetcher"]), given) == ("inconsistent", "ce-source")


# ---------------------------------------------------------------- 1.x
@pytest.mark.parametrize(
    ("routing_key", "verdict"),
    [
        ("job.completed", ("accepted", "")),
        ("job.completed.plugin-crm", ("accepted", "")),
        ("job.failed", ("inconsistent", "route")),
        ("job.completedx", ("inconsistent", "route")),
    ],
)
async def test_the_layout_of_1x_is_taken_only_where_it_is_switched_on(
    routing_key: str, verdict: tuple[str, str]
) -> None:
    signature = mac(KEY, body_only_head(int(NOW)) + make().body)
    given = with_headers(replace(make(), origin=Origin(EXCHANGE, routing_key)), x_message_signature=signature)
    assert await outcome(verifier(), given) == ("invalid", "signature")
    assert await outcome(verifier(allow_1x=True), given) == verdict


async def test_with_1x_switched_on_everything_else_is_judged_as_before() -> None:
    assert await outcome(verifier(allow_1x=True), make()) == ("accepted", "")
    forged = with_headers(make(), x_message_signature="0" * 64)
    assert await outcome(verifier(allow_1x=True), forged) == ("invalid", "signature")


# ---------------------------------------------------------------- settings, and what is shown
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"exchange": ""}, "exchange must be a text"),
        ({"exchange": "a\nb"}, "exchange must be a text"),
        ({"tenant": ""}, "tenant must be a text"),
        ({"tenant": 7}, "tenant must be a text"),
        ({"sources": "one"}, "sources must be a list of texts"),
        ({"sources": []}, "sources must be a list of texts"),
        ({"families": [7]}, "families must be a list of texts"),
        ({"max_age": -1}, "max_age must be a number of seconds"),
        ({"max_age": True}, "max_age must be a number of seconds"),
        ({"max_future": float("inf")}, "max_future must be a number of seconds"),
        ({"routes": []}, "routes must be a list of texts"),
        ({"routes": ["own"]}, "routes may hold origin, first-death, configured, unrecorded"),
    ],
)
def test_a_wrong_setting_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{said}"):
        verifier(**settings)


def test_nothing_that_is_shown_holds_a_key_or_what_was_sent() -> None:
    assert repr(FetcherVerifier(FetcherKeys([KEY]))) == "<FetcherVerifier with 1 keys>"
    with pytest.raises(InvalidJobEvent) as refused:
        verifier().check_signature(with_headers(make(), x_message_signature="hunter2"))
    assert str(refused.value) == "invalid: signature: no key, route and job id give this signature"
