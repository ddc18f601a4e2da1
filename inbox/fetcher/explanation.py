"""Why a job event is or is not accepted, step by step, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from inbox.core.cloudevents import decode
from inbox.core.headers import text_of
from inbox.errors import Undecodable
from inbox.fetcher.refusals import InconsistentJobEvent, InvalidJobEvent, JobEventRefused, StaleJobEvent, Verdict
from inbox.fetcher.signature import SIGNATURE, TENANT, TIMESTAMP, VERSION

if TYPE_CHECKING:
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.fetcher.verifier import FetcherVerifier


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a verification.

    Attributes:
        name: one word.
        passed: whether the next step was taken.
        said: what was found. Holds what a peer wrote: for the person who asked, and for no log.
    """

    name: str
    passed: bool
    said: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a verification came to.

    Attributes:
        verdict: `accepted`, or which kind of refusal.
        reason: a stable word within the verdict; None where it is accepted.
        event_id: `ce-id`, where the message is a readable CloudEvent, whether it is authentic or not.
        steps: those that were taken, the last of which says no unless it is accepted.
        hints: what would have been accepted instead, a sentence each.
    """

    verdict: Verdict
    reason: str | None
    event_id: str | None
    steps: tuple[Step, ...]
    hints: tuple[str, ...] = ()


def explain(verifier: FetcherVerifier, delivery: Delivery) -> Explanation:
    """Verify `delivery` as the engine would, and tell each step.

    Only the order differs: the engine refuses what is no readable CloudEvent before it asks the verifier. A replay is
    not exempt from freshness here.

    Args:
        verifier: as the consumer has it.
        delivery: untrusted.
    """
    steps: list[Step] = []

    def tell(name: str, said: str) -> None:
        steps.append(Step(name, passed=True, said=said))

    event = _decoded(delivery)
    event_id = None if isinstance(event, Undecodable) else event.id
    try:
        match = verifier.check_signature(delivery, tell)
        verifier.check_freshness(match, tell)
        if isinstance(event, Undecodable):
            raise InconsistentJobEvent("undecodable", f"it is no readable CloudEvent: {event.code}: {event.detail}")
        verifier.check_event(delivery, event, match, tell)
    except JobEventRefused as refusal:
        steps.append(Step(_step_of(refusal, steps), passed=False, said=refusal.detail))
        hints = tuple(_hints(verifier, delivery)) if isinstance(refusal, InvalidJobEvent) else ()
        return Explanation(refusal.verdict, refusal.reason, event_id, tuple(steps), hints)
    return Explanation("accepted", None, event_id, tuple(steps))


def _step_of(refusal: JobEventRefused, passed: list[Step]) -> str:
    """The step that ended in `refusal`."""
    if isinstance(refusal, InvalidJobEvent):
        return "signature" if passed else "headers"
    return "freshness" if isinstance(refusal, StaleJobEvent) else "event"


def _decoded(delivery: Delivery) -> CloudEvent | Undecodable:
    try:
        return decode(delivery)
    except Undecodable as error:
        return error


# ------------------------------------------------------------------ what would have been accepted
def _hints(verifier: FetcherVerifier, delivery: Delivery) -> Iterator[str]:
    yield from _misspelt_names(delivery)
    for said, changed in _changes(delivery):
        if _holds(verifier, changed):
            yield f"the signature would hold {said}"
    try:
        match = verifier.relaxed().check_signature(delivery)
    except JobEventRefused:
        return
    if match.covers_route:
        yield (
            f"the signature holds by the route {match.route.exchange!r} / {match.route.routing_key!r}: the message was "
            "moved or published again, and nothing in its headers says so"
        )
    else:
        yield "the signature holds in the layout of 1.x, which covers neither tenant nor route, and has to be allowed"


def _misspelt_names(delivery: Delivery) -> Iterator[str]:
    for name in (SIGNATURE, TIMESTAMP, VERSION, TENANT):
        if name not in delivery.headers:
            found = [other for other in delivery.headers if other.lower() == name.lower()]
            yield from (f"there is a header {other!r}: names are case-sensitive, {name} is meant" for other in found)


def _changes(delivery: Delivery) -> Iterator[tuple[str, Delivery]]:
    """What goes wrong on the way, undone: each with the words for it."""
    signature = text_of(delivery.headers.get(SIGNATURE))
    if signature is not None:
        plain = signature.strip().lower().removeprefix("sha256=")
        if plain != signature:
            yield "as 64 lower-case hex digits and nothing else", _with(delivery, **{SIGNATURE: plain})
    body = delivery.body.rstrip(b"\r\n")
    if body != delivery.body:
        yield "without the line end behind the body: did an editor add it?", replace(delivery, body=body)
    tenant = delivery.headers.get("ce-tenantid")
    if tenant is not None and tenant != delivery.headers.get(TENANT):
        yield f"for the tenant that ce-tenantid names: {TENANT} was changed", _with(delivery, **{TENANT: tenant})
    if TENANT in delivery.headers:
        without = {name: value for name, value in delivery.headers.items() if name != TENANT}
        yield f"without the header {TENANT}: it was added", replace(delivery, headers=without)


def _with(delivery: Delivery, **headers: Any) -> Delivery:
    return replace(delivery, headers={**delivery.headers, **headers})


def _holds(verifier: FetcherVerifier, delivery: Delivery) -> bool:
    try:
        verifier.check_signature(delivery)
    except JobEventRefused:
        return False
    return True
