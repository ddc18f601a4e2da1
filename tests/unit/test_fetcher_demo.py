"""The demo for Fetcher: what it forges is refused for what is wrong with it, and a forgery stands for nobody."""

import time
from collections import Counter

import pytest

from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery, Origin
from inbox.demo.forgeries import FORGERIES
from inbox.demo.judge import Found, judge
from inbox.demo.script import Effect, Expected, Refusal, Sending, key_of_seed, make_script
from inbox.demo.stage import EXCHANGE
from inbox.fetcher import FetcherVerifier, JobEventRefused

SEED = 5
VERIFIER = FetcherVerifier([key_of_seed(SEED)], exchange=EXCHANGE)


def forged_script(events: int = 200) -> list[Sending]:
    return make_script(events, 0.25, SEED, EXCHANGE, forged=True)


async def verdict_on(sending: Sending) -> str | None:
    encoded = sending.encoded()
    route = Origin(sending.sender.exchange, sending.job.routing_key)
    delivery = Delivery(
        body=encoded.body, headers=encoded.headers, content_type=encoded.content_type, origin=route, queue="demo"
    )
    try:
        await VERIFIER.verify(delivery, decode(delivery))
    except JobEventRefused as refusal:
        return refusal.verdict
    return None


async def test_every_forgery_is_refused_and_nothing_else() -> None:
    script = forged_script()
    refused = {sending.event_id for sending in script if await verdict_on(sending) is not None}
    for sending in script:
        due = sending.due.reason if isinstance(sending.due, Refusal) else None
        assert await verdict_on(sending) == (None if due == "rejected" else due)
    forged = {each.event_id for each in script if isinstance(each.due, Refusal) and each.due.reason != "rejected"}
    assert refused == forged
    assert len(forged) == len(FORGERIES), "one of each kind"


async def test_forgeries_differ_from_what_is_genuine_in_what_they_say() -> None:
    assert len({forgery.what for forgery in FORGERIES}) == len(FORGERIES)
    assert Counter(forgery.borrows for forgery in FORGERIES)[True] == 2


@pytest.mark.parametrize("events", [1, 19, 20, 21, 42, 60, 3000])
def test_what_borrows_an_id_comes_before_the_event_that_it_belongs_to(events: int) -> None:
    script = forged_script(events)
    assert len({(sending.event_id, isinstance(sending.due, Effect)) for sending in script}) == events
    seen: set[str] = set()
    borrowed = [sending for sending in script if sending.borrowed_id is not None]
    for sending in script:
        assert sending not in borrowed or sending.event_id not in seen
        if isinstance(sending.due, Effect):
            seen.add(sending.event_id)
    assert {sending.event_id for sending in borrowed} <= seen
    assert bool(borrowed) == (events >= 20)


def test_without_forgeries_it_is_the_script_that_it_was() -> None:
    assert {each.due.reason for each in make_script(200, 0, SEED, EXCHANGE) if isinstance(each.due, Refusal)} == {
        "rejected",
        "no-handler",
    }


def test_a_forgery_in_quarantine_does_not_stand_for_the_event_whose_id_it_has() -> None:
    expected = Expected()
    expected.add(forged_script())
    found = Found(
        lines={event: [(due.account, due.kind, due.cents)] for event, due in expected.effects.items()},
        balances=expected.balances,
        claimed=set(expected.effects),
        refusals={event: {due.reason} for event, due in expected.refusals.items()},
    )
    assert judge(expected, found).is_good
    (burned, *_) = expected.effects.keys() & expected.refusals.keys()
    del found.lines[burned]
    found.claimed.discard(burned)
    assert judge(expected, found).lost == 1


def test_the_time_of_a_publish_is_now() -> None:
    sending = next(each for each in forged_script() if isinstance(each.due, Effect))
    assert abs(int(str(sending.encoded().headers["t"])) - time.time()) < 5
