"""Each step is told, and a refusal with what would have been accepted."""

from dataclasses import replace
from typing import Any

import pytest

from inbox.core.delivery import Delivery, Origin
from inbox.fetcher import FetcherVerifier
from inbox.fetcher.explanation import explain
from inbox.fetcher.signature import body_only_head, mac
from tests.unit.fetcher_cases import (
    DELIVERIES,
    EXCHANGE,
    KEY,
    NOW,
    delivery_of,
    make,
    outcome,
    verifier_of,
    with_headers,
)

VERIFIER = FetcherVerifier([KEY], clock=lambda: NOW)


@pytest.mark.parametrize("name", DELIVERIES)
async def test_the_explanation_comes_to_what_the_engine_comes_to(name: str) -> None:
    told = explain(verifier_of(name), delivery_of(name))
    assert (told.verdict, told.reason or "") == await outcome(verifier_of(name), delivery_of(name))
    assert [step.passed for step in told.steps] == [True] * (len(told.steps) - 1) + [told.verdict == "accepted"]
    assert str(told.event_id).startswith("fetcher.job.")


@pytest.mark.parametrize(
    ("delivery", "settings", "steps"),
    [
        (make(), {}, ["headers", "candidates", "signature", "freshness", "event"]),
        (with_headers(make(), t=None), {}, ["headers"]),
        (with_headers(make(), x_message_signature="0" * 64), {}, ["headers", "candidates", "signature"]),
        (make(now=NOW - 400), {"max_age": 300}, ["headers", "candidates", "signature", "freshness"]),
        (with_headers(make(), ce_id="1"), {}, ["headers", "candidates", "signature", "freshness", "event"]),
    ],
)
def test_the_last_step_is_the_one_that_decided(delivery: Delivery, settings: dict[str, Any], steps: list[str]) -> None:
    told = explain(FetcherVerifier([KEY], clock=lambda: NOW, **settings), delivery)
    assert [step.name for step in told.steps] == steps


def test_what_is_no_readable_event_is_said_with_its_code() -> None:
    told = explain(VERIFIER, with_headers(make(), ce_id=None))
    assert (told.verdict, told.reason, told.event_id) == ("inconsistent", "undecodable", None)
    assert told.steps[-1].said == "undecodable: it is no readable CloudEvent: missing-id: id is absent"


LINE_END = replace(make(), body=make().body + b"\r\n")
GOOD = make()
SIGNED_1X = mac(KEY, body_only_head(int(NOW)) + GOOD.body)
NAMELESS = {name: value for name, value in GOOD.headers.items() if name not in {"X-Tenant-ID", "t"}}


@pytest.mark.parametrize(
    ("delivery", "hint"),
    [
        (LINE_END, "without the line end behind the body"),
        (with_headers(GOOD, x_message_signature=str(GOOD.headers["x-message-signature"]).upper()), "lower-case hex"),
        (with_headers(GOOD, x_message_signature=f"sha256={GOOD.headers['x-message-signature']}"), "lower-case hex"),
        (replace(GOOD, headers={**GOOD.headers, "X-Tenant-ID": "other"}), "for the tenant that ce-tenantid names"),
        (
            replace(
                delivery_of("v-no-tenant-header"),
                headers={**delivery_of("v-no-tenant-header").headers, "X-Tenant-ID": "x"},
            ),
            "without the header X-Tenant-ID",
        ),
        (replace(GOOD, origin=Origin("", "parking")), f"by the route '{EXCHANGE}' / 'job.completed'"),
        (with_headers(GOOD, x_message_signature=SIGNED_1X), "in the layout of 1.x"),
        (replace(GOOD, headers={**NAMELESS, "T": "1", "x-tenant-id": "y"}), "there is a header 'T'"),
        (replace(GOOD, headers={**NAMELESS, "T": "1", "x-tenant-id": "y"}), "there is a header 'x-tenant-id'"),
    ],
)
def test_what_would_have_been_accepted_is_told(delivery: Delivery, hint: str) -> None:
    keys = [KEY, bytes.fromhex("ec9eedfd0b245950528714e5328ff2c2639ab32540a309f1cd68685ceaff9dfe")]
    told = explain(FetcherVerifier(keys, clock=lambda: NOW), delivery)
    assert told.verdict == "invalid"
    assert any(hint in each for each in told.hints), told.hints


def test_a_forgery_has_no_hint() -> None:
    assert explain(VERIFIER, with_headers(GOOD, x_message_signature="0" * 64)).hints == ()
    assert explain(VERIFIER, with_headers(GOOD, x_message_signature=7)).hints == ()
