"""Decides whether a job event is authentic, fresh and consistent (job event contract, sections 6.1 and 6.2).

All of it comes before the inbox row is inserted: whoever may publish could otherwise burn the id of an event that is
still to come. The signature covers the body, the tenant and the route, and no `ce-*` header. So those are bound to the
body here, `ce-type` among them, for it chooses the handler.
"""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from inbox.config import require
from inbox.core.delivery import Origin
from inbox.core.event import strict_json
from inbox.core.headers import text_of
from inbox.errors import Undecodable
from inbox.fetcher.keys import FetcherKeys
from inbox.fetcher.models import FAMILIES, STATUSES, event_id_of, is_job_id, types_of
from inbox.fetcher.refusals import InconsistentJobEvent, InvalidJobEvent, StaleJobEvent
from inbox.fetcher.signature import Envelope, body_only_head, is_line, mac, read_envelope, signed_head

if TYPE_CHECKING:
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.fetcher.models import Status

#: The provider's shipped name (RABBITMQ_JOB_EVENTS_EXCHANGE).
DEFAULT_EXCHANGE: Final = "fetcher.job.events"

#: Seconds that a clock may be behind the Worker's: the provider's own.
DEFAULT_MAX_FUTURE: Final = 30.0

#: By which routes a signature may hold, in the order in which they are tried.
Route = Literal["origin", "first-death", "configured", "unrecorded"]
DEFAULT_ROUTES: Final[tuple[Route, ...]] = ("origin", "first-death", "configured")

_FIRST_DEATH: Final = "x-first-death-exchange"

#: Told of each step that was passed: its name, and what was found. Holds remote text: only for people who ask.
Tell = Callable[[str, str], None]


class Claims(NamedTuple):
    """What the body says, before anybody has said that it is authentic.

    Attributes:
        members: of the JSON object that it is; None where it is none.
    """

    members: dict[str, Any] | None

    @property
    def job_lines(self) -> list[str]:
        """Candidates for the job line, without repeats: 2.0.x signs `jobId`, and what the later line signs is open."""
        members = self.members or {}
        named = [members.get("jobId"), members.get("job_id"), ""]
        lines = [name for name in named if isinstance(name, str) and is_line(name)]
        return lines if len(lines) == len({*lines}) else [*dict.fromkeys(lines)]

    @property
    def status(self) -> Status | None:
        """How the job ended, if it says so in a word that there is."""
        said = None if self.members is None else self.members.get("status")
        return next((status for status in STATUSES if status == said), None)


class Match(NamedTuple):
    """How a signature was found to be good.

    Attributes:
        envelope: its headers.
        claims: what the body says.
        route: the one that it holds for; the delivery's own where it covers none.
        job_line: the one that it holds for.
        key: the place of the key that made it, from 1.
        covers_route: false for the layout of 1.x, which signs neither route nor tenant.
    """

    envelope: Envelope
    claims: Claims
    route: Origin
    job_line: str
    key: int
    covers_route: bool = True


class FetcherVerifier:
    """Verifies job events of Fetcher.

        inbox = Inbox(..., verifier=FetcherVerifier(FetcherKeys.from_env(), tenant="single-tenant"))

    Args:
        keys: the external HMAC keys, the one in use first; see `FetcherKeys`.
        exchange: that the Workers publish to (their RABBITMQ_JOB_EVENTS_EXCHANGE).
        tenant: the only one that is expected here, exactly as the Worker writes it: the dashed and the dashless
            spelling of one UUID are two texts. None takes every tenant that the signature covers.
        sources: the only values of `ce-source` that are taken; None takes all. It is not signed, so this tells
            deployments apart that mean no harm, and no forger from anybody.
        max_age: seconds since the signing, more than which are refused as stale; None refuses none. What waits in a
            queue grows old and stays authentic, and a replay is a duplicate to the inbox: where it is set, it must be
            longer than the longest outage that the queue is to survive, and than `RetryPolicy.horizon`.
        max_future: seconds that the time of signing may lie ahead; None takes all.
        routes: by which exchange and routing key a signature may hold. `origin` is the first publish as far as the
            transport can tell: the delivery's own, that of our own copies, that of the broker's record of the first
            death. `first-death` and `configured` are the exchange in `x-first-death-exchange` and `exchange`, with
            `job.` and the status of the body, where that header is there. `unrecorded` is the last one also where it
            is not: for links and programs that publish a message again and leave no trace.
        families: what a `ce-type` may begin with, before `.job.` and the status.
        allow_1x: take the signature of 1.x as well. It covers neither route nor tenant, so it is a downgrade; and a
            message of 1.x itself has no `ce-id`, so it can be no event. For the provider's own migration only.
        clock: Unix time in seconds.

    Raises:
        ConfigurationError: a key is malformed, or another setting is.
    """

    def __init__(
        self,
        keys: FetcherKeys | str | Iterable[str | bytes],
        *,
        exchange: str = DEFAULT_EXCHANGE,
        tenant: str | None = None,
        sources: Collection[str] | None = None,
        max_age: float | None = None,
        max_future: float | None = DEFAULT_MAX_FUTURE,
        routes: Collection[Route] = DEFAULT_ROUTES,
        families: Collection[str] = FAMILIES,
        allow_1x: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = (keys if isinstance(keys, FetcherKeys) else FetcherKeys(keys)).octets
        _require_line("exchange", exchange)
        if tenant is not None:
            _require_line("tenant", tenant)
        if sources is not None:
            _require_texts("sources", sources)
        _require_seconds("max_age", max_age)
        _require_seconds("max_future", max_future)
        _require_texts("families", families)
        _require_texts("routes", routes)
        require({*routes} <= {*get_args(Route)}, f"routes may hold {', '.join(get_args(Route))}")
        self._exchange = exchange
        self._tenant = tenant
        self._sources = None if sources is None else frozenset(sources)
        self._max_age = max_age
        self._max_future = max_future
        self._routes = frozenset(routes)
        self._types = {status: frozenset(types_of(status, tuple(families))) for status in STATUSES}
        self._allow_1x = allow_1x
        self._clock = clock

    def __repr__(self) -> str:
        return f"<FetcherVerifier with {len(self._keys)} keys>"

    def relaxed(self) -> FetcherVerifier:
        """One with the same keys that tries every route and the layout of 1.x: to find out why this one says no."""
        return FetcherVerifier(self._keys, exchange=self._exchange, routes=get_args(Route), allow_1x=True)

    async def verify(self, delivery: Delivery, event: CloudEvent) -> None:
        """See `inbox.ports.Verifier.verify`. Does no I/O.

        Raises:
            InvalidJobEvent: no key has signed it as it came.
            StaleJobEvent: it is authentic and too old, or from the future; not for a replay out of the quarantine.
            InconsistentJobEvent: it is authentic, and its headers belong to something else.
        """
        match = self.check_signature(delivery)
        if not delivery.is_replay:
            self.check_freshness(match)
        self.check_event(delivery, event, match)

    # -------------------------------------------------------- authentic?
    def check_signature(self, delivery: Delivery, tell: Tell | None = None) -> Match:
        """Find the key, route and job line that give the signature of `delivery`.

        Args:
            delivery: only headers, body and origin are read.
            tell: told of each step.

        Raises:
            InvalidJobEvent: there are none, or a header of the signature is missing or malformed.
        """
        envelope = read_envelope(delivery.headers)
        claims = _claims_of(delivery.body)
        if tell is not None:
            self._tell_headers(tell, envelope, claims, delivery)
        match = self._match(delivery, envelope, claims)
        if match is None and self._allow_1x:
            match = self._match_1x(delivery, envelope, claims)
        if match is None:
            if not any(map(_can_be_signed, self._candidates(delivery, claims))):
                raise InvalidJobEvent("control-character", "there is no route without a control character")
            raise InvalidJobEvent("signature", "no key, route and job id give this signature")
        if tell is not None:
            covered = f"by the route {_shown(match.route)}, " if match.covers_route else "in the layout of 1.x, "
            tell("signature", f"good: {covered}job line {match.job_line!r}, key {match.key} of {len(self._keys)}")
        return match

    def _tell_headers(self, tell: Tell, envelope: Envelope, claims: Claims, delivery: Delivery) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(envelope.timestamp, 253_402_300_799)))
        tell("headers", f"signed as v1 at t = {envelope.timestamp} ({at}) for the tenant {envelope.tenant!r}")
        routes = ", ".join(map(_shown, dict.fromkeys(self._candidates(delivery, claims))))
        jobs = ", ".join(map(repr, claims.job_lines))
        tell("candidates", f"routes: {routes or 'none'}; job lines: {jobs}; keys: {len(self._keys)}")

    def _match(self, delivery: Delivery, envelope: Envelope, claims: Claims) -> Match | None:
        tenant = envelope.tenant or ""
        lines = claims.job_lines
        tried: list[Origin] = []
        for route in self._candidates(delivery, claims):
            if route in tried or not _can_be_signed(route):
                continue
            tried.append(route)
            for line in lines:
                head = signed_head(envelope.timestamp, tenant, line, route.exchange, route.routing_key)
                key = self._key_of(head + delivery.body, envelope.signature)
                if key is not None:
                    return Match(envelope, claims, route, line, key)
        return None

    def _match_1x(self, delivery: Delivery, envelope: Envelope, claims: Claims) -> Match | None:
        key = self._key_of(body_only_head(envelope.timestamp) + delivery.body, envelope.signature)
        return None if key is None else Match(envelope, claims, delivery.origin, "", key, covers_route=False)

    def _key_of(self, signed: bytes, signature: bytes) -> int | None:
        """The place of the key that makes `signature`. Octets are compared: texts that are no ASCII would raise."""
        for number, key in enumerate(self._keys, 1):
            if hmac.compare_digest(mac(key, signed).encode(), signature):
                return number
        return None

    def _candidates(self, delivery: Delivery, claims: Claims) -> Iterator[Origin]:
        """Routes that may have been signed. None of them needs to be trusted: the HMAC decides."""
        if "origin" in self._routes:
            yield delivery.origin
        status = claims.status
        if status is None:
            return
        routing_key = f"job.{status}"
        died_in = text_of(delivery.headers.get(_FIRST_DEATH))
        if died_in is not None and "first-death" in self._routes:
            yield Origin(died_in, routing_key)
        if "unrecorded" in self._routes or (died_in is not None and "configured" in self._routes):
            yield Origin(self._exchange, routing_key)

    # -------------------------------------------------------- fresh?
    def check_freshness(self, match: Match, tell: Tell | None = None) -> None:
        """Compare the time of signing with the clock; both limits are inclusive.

        Raises:
            StaleJobEvent: it is too old, or too far in the future.
        """
        age = self._clock() - match.envelope.timestamp
        if self._max_age is not None and age > self._max_age:
            raise StaleJobEvent("too-old", f"authentic, and signed {age:.3f} s ago; max_age is {self._max_age:g} s")
        if self._max_future is not None and -age > self._max_future:
            limit = f"max_future is {self._max_future:g} s"
            raise StaleJobEvent("in-the-future", f"authentic, and signed {-age:.3f} s from now; {limit}")
        if tell is not None:
            limit = "any age is taken" if self._max_age is None else f"at most {self._max_age:g} s"
            tell("freshness", f"{age:.3f} s old; {limit}")

    # -------------------------------------------------------- consistent?
    def check_event(self, delivery: Delivery, event: CloudEvent, match: Match, tell: Tell | None = None) -> None:
        """Bind what is not signed to what is.

        Raises:
            InconsistentJobEvent: the body is none of a job event, something contradicts it, or it is another tenant's
                or another deployment's.
        """
        members, status = match.claims.members, match.claims.status
        if members is None:
            raise InconsistentJobEvent("body", "the body is no JSON object")
        job_id = _job_id(members)
        if status is None:
            raise InconsistentJobEvent("status", "the body's status is neither completed nor failed")
        if not _is_route_of(match, status):
            raise InconsistentJobEvent("route", "the routing key that was signed is not that of the body's status")
        if (event.data or b"") != delivery.body:
            raise InconsistentJobEvent(
                "content-mode", "the event is wrapped in another body than the one that was signed"
            )
        self._bind_attributes(event, job_id, status)
        self._bind_tenant(event, match.envelope.tenant)
        if self._sources is not None and event.source not in self._sources:
            raise InconsistentJobEvent("ce-source", "ce-source is none of the sources that are expected")
        if tell is not None:
            tell("event", f"{event.id}: headers, route and body agree")

    def _bind_attributes(self, event: CloudEvent, job_id: str, status: Status) -> None:
        if event.id != event_id_of(job_id, status):
            raise InconsistentJobEvent("ce-id", "ce-id is not that of the body's job and status")
        if event.subject != job_id:
            raise InconsistentJobEvent("ce-subject", "ce-subject is not the body's job")
        if event.extensions.get("resourcetype") != "job":
            raise InconsistentJobEvent("ce-resourcetype", "ce-resourcetype is not job")
        if event.extensions.get("eventtype") != status:
            raise InconsistentJobEvent("ce-eventtype", "ce-eventtype is not the body's status")
        if event.type not in self._types[status]:
            raise InconsistentJobEvent("ce-type", "ce-type is none that means the body's status")

    def _bind_tenant(self, event: CloudEvent, tenant: str | None) -> None:
        """Absent is as empty, here as in the signature."""
        if event.extensions.get("tenantid", "") != (tenant or ""):
            raise InconsistentJobEvent("tenant", "ce-tenantid is not the tenant that was signed")
        if self._tenant is not None and tenant != self._tenant:
            raise InconsistentJobEvent("tenant", "the event is another tenant's than the one that is expected here")


def _claims_of(body: bytes) -> Claims:
    try:
        parsed = strict_json(body)
    except Undecodable:
        return Claims(None)
    return Claims(parsed if type(parsed) is dict else None)


def _job_id(members: dict[str, Any]) -> str:
    found = [members[name] for name in ("jobId", "job_id") if name in members]
    job_id = found[0] if found else None
    if not isinstance(job_id, str) or not is_job_id(job_id):
        raise InconsistentJobEvent("job-id", "the body's job id is no lower-case UUID with hyphens")
    if found[-1] != job_id:
        raise InconsistentJobEvent("job-id", "the body has two job ids, jobId and job_id")
    return job_id


def _is_route_of(match: Match, status: Status) -> bool:
    """1.x appends the requester's product to its routing keys, `job.completed.plugin-crm`, and signs none of it."""
    routing_key = match.route.routing_key
    return routing_key == f"job.{status}" or (not match.covers_route and routing_key.startswith(f"job.{status}."))


def _can_be_signed(route: Origin) -> bool:
    return is_line(route.exchange) and is_line(route.routing_key)


def _shown(route: Origin) -> str:
    return f"{route.exchange!r} / {route.routing_key!r}"


def _require_line(name: str, given: object) -> None:
    is_usable = isinstance(given, str) and is_line(given)
    require(is_usable and given != "", f"{name} must be a text without control characters, and not empty")


def _require_seconds(name: str, given: object) -> None:
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < math.inf
    require(given is None or is_number, f"{name} must be a number of seconds from 0, or None")


def _require_texts(name: str, given: object) -> None:
    is_list = isinstance(given, Collection) and not isinstance(given, str) and len(given) > 0
    require(is_list and all(isinstance(each, str) for each in given), f"{name} must be a list of texts, and not empty")  # type: ignore[attr-defined]
