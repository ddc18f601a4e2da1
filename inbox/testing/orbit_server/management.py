"""The management API: HTTP with JSON, the same bearers. A shell around the provider and the switches.

Below `/v1` stands what we take the provider's own management API to be; below `/test` what a test needs and no provider
has: results of tasks, the clock, switches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from inbox.adapters.websocket.codec import ErrorCode
from inbox.core.event import strict_json
from inbox.core.proof import uint64_of
from inbox.errors import ConfigurationError, Undecodable
from inbox.testing.orbit_server.refusal import Conflict, Refusal
from inbox.testing.orbit_server.rules import State
from inbox.testing.orbit_server.switches import Switch
from inbox.testing.orbit_server.wire import Cut

if TYPE_CHECKING:
    from inbox.testing.orbit_server.session import Room
    from inbox.testing.orbit_server.store import CredentialRow, DeliveryRow, SubscriptionRow

__all__ = ["Management", "bearer_of", "refusing"]

STATUSES: Final = {
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.PROTOCOL: 400,
    ErrorCode.HISTORY_GAP: 410,
    ErrorCode.BUSY: 429,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
    ErrorCode.PROOF_LOST: 409,
}
_CONFLICT: Final = 409
_CREATED: Final = 201

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def bearer_of(request: web.Request) -> str:
    """The bearer of a request.

    Raises:
        Refusal: UNAUTHENTICATED: there is none.
    """
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not bearer:  # RFC 9110, 11.1: the scheme is case-insensitive
        raise Refusal(ErrorCode.UNAUTHENTICATED, "send Authorization: Bearer …")
    return bearer


@web.middleware
async def refusing(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Turn what is refused into a status and a JSON object."""
    try:
        return await handler(request)
    except Refusal as refusal:
        response = _error(STATUSES[refusal.code], refusal.code.value, refusal.message)
    except Conflict as conflict:
        return _error(_CONFLICT, "CONFLICT", str(conflict))
    except ConfigurationError as error:
        return _error(STATUSES[ErrorCode.PROTOCOL], ErrorCode.PROTOCOL.value, str(error))
    if response.status == STATUSES[ErrorCode.UNAUTHENTICATED]:
        response.headers["WWW-Authenticate"] = "Bearer"  # RFC 9110, 15.5.2
    return response


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status)


class Management:
    """Its routes.

    Args:
        room: with the provider, the switches and the connections.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._provider = room.provider

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [
            web.get("/v1/health", self.health),
            web.post("/v1/credentials", self.add_credential),
            web.patch("/v1/credentials/{name}", self.rescope),
            web.delete("/v1/credentials/{name}", self.revoke),
            web.post("/v1/subscriptions", self.subscribe),
            web.get("/v1/subscriptions", self.subscriptions),
            web.get("/v1/subscriptions/{id}", self.subscription),
            web.post("/v1/subscriptions/{id}/pause", self.pause),
            web.post("/v1/subscriptions/{id}/resume", self.resume),
            web.get("/v1/subscriptions/{id}/events", self.events),
            web.get("/v1/subscriptions/{id}/events/{event_id}", self.event),
            web.post("/v1/subscriptions/{id}/events/{event_id}/budget", self.add_budget),
            web.post("/test/results/{queue}", self.publish),
            web.post("/test/subscriptions/{id}/trim", self.trim),
            web.post("/test/subscriptions/{id}/events/{event_id}/replace", self.replace),
            web.get("/test/clock", self.clock),
            web.post("/test/clock", self.turn_clock),
            web.get("/test/switches", self.switches),
            web.post("/test/switches", self.set_switch),
            web.delete("/test/switches", self.clear_switches),
            web.delete("/test/switches/{number}", self.clear_switches),
            web.post("/test/switches/{number}/release", self.release_switch),
            web.get("/test/connections", self.connections),
            web.delete("/test/connections", self.cut_connections),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """Whether it serves; asks for no bearer."""
        return web.json_response({"status": "ok"})

    # ------------------------------------------------------------ credentials
    async def add_credential(self, request: web.Request) -> web.Response:
        """`{"name", "queues"}`; answers with the bearer, this once."""
        self._operator(request)
        members = await _members(request, {"name": str, "queues": list}, required=("name", "queues"))
        bearer = self._provider.add_credential(members["name"], _queues(members))
        return web.json_response({"name": members["name"], "credential": bearer}, status=_CREATED)

    async def rescope(self, request: web.Request) -> web.Response:
        """`{"queues"}`: another scope."""
        self._operator(request)
        members = await _members(request, {"queues": list}, required=("queues",))
        self._provider.rescope(request.match_info["name"], _queues(members))
        return web.json_response({"queues": members["queues"]})

    async def revoke(self, request: web.Request) -> web.Response:
        """Take one back."""
        self._operator(request)
        self._provider.revoke(request.match_info["name"])
        return web.json_response({})

    # ------------------------------------------------------------ subscriptions
    async def subscribe(self, request: web.Request) -> web.Response:
        """`{"queue"}`, and `budget`, `window`, `first_sequence`, `first_generation` where wanted."""
        kinds = {"queue": str, "budget": int, "window": int, "first_sequence": str, "first_generation": str}
        credential = self._credential(request)
        members = await _members(request, kinds, required=("queue",))
        for name in ("first_sequence", "first_generation"):
            if name in members:
                members[name] = _uint64(name, members[name])
        made = self._provider.subscribe(credential, members.pop("queue"), **members)
        return web.json_response(self._subscription(made), status=_CREATED)

    async def subscriptions(self, request: web.Request) -> web.Response:
        """Those of the credential."""
        found = self._provider.subscriptions(self._credential(request))
        return web.json_response({"subscriptions": [self._subscription(each) for each in found]})

    async def subscription(self, request: web.Request) -> web.Response:
        """One of them."""
        return web.json_response(self._subscription(self._managed(request)))

    async def pause(self, request: web.Request) -> web.Response:
        """Claim nothing until `resume`."""
        return self._enable(request, is_enabled=False)

    async def resume(self, request: web.Request) -> web.Response:
        """Go on."""
        return self._enable(request, is_enabled=True)

    def _enable(self, request: web.Request, *, is_enabled: bool) -> web.Response:
        self._provider.enable(self._managed(request).id, is_enabled=is_enabled)
        return web.json_response(self._subscription(self._managed(request)))

    async def events(self, request: web.Request) -> web.Response:
        """All, or with `?state=expired` those in a state."""
        asked = request.query.get("state")
        if asked is not None and asked not in {state.value for state in State}:
            raise Refusal(ErrorCode.PROTOCOL, f"state: one of {', '.join(State)}")
        found = self._provider.events(self._managed(request).id, None if asked is None else State(asked))
        return web.json_response({"events": [_event(row) for row in found]})

    async def event(self, request: web.Request) -> web.Response:
        """One of them."""
        found = self._provider.event(self._managed(request).id, request.match_info["event_id"])
        return web.json_response(_event(found))

    async def add_budget(self, request: web.Request) -> web.Response:
        """`{"more"}`: so many hand-outs more."""
        managed = self._managed(request)
        members = await _members(request, {"more": int}, required=("more",))
        changed = self._provider.add_budget(managed.id, request.match_info["event_id"], members["more"])
        return web.json_response(_event(changed))

    # ------------------------------------------------------------ what only tests do
    async def publish(self, request: web.Request) -> web.Response:
        """The body is the snapshot; `?type=` and `?occurred_at=` where wanted."""
        credential, queue = self._credential(request), request.match_info["queue"]
        if not credential.covers(queue):
            raise Refusal(ErrorCode.FORBIDDEN, "the queue is not in the credential's scope")
        published = self._provider.publish(
            queue,
            await request.read(),
            event_type=request.query.get("type", "task.succeeded"),
            occurred_at=request.query.get("occurred_at"),
        )
        events = [{"subscription_id": each.subscription_id, "event_id": each.event_id} for each in published]
        return web.json_response({"events": events}, status=_CREATED)

    async def trim(self, request: web.Request) -> web.Response:
        """Drop what is beyond the window."""
        self._operator(request)
        return web.json_response({"dropped": self._provider.trim_history(request.match_info["id"])})

    async def replace(self, request: web.Request) -> web.Response:
        """Let a newer generation replace the proof."""
        self._operator(request)
        changed = self._provider.replace_proof(request.match_info["id"], request.match_info["event_id"])
        return web.json_response(_event(changed))

    async def clock(self, request: web.Request) -> web.Response:
        """The server's time, in seconds since 1970."""
        self._operator(request)
        return web.json_response({"now": self._provider.now()})

    async def turn_clock(self, request: web.Request) -> web.Response:
        """`{"seconds"}`: go so far ahead."""
        self._operator(request)
        members = await _members(request, {"seconds": (int, float)}, required=("seconds",))
        return web.json_response({"now": self._provider.turn_clock(float(members["seconds"]))})

    async def switches(self, request: web.Request) -> web.Response:
        """Those that are set, and how often each acted."""
        self._operator(request)
        return web.json_response({"switches": self._room.switches.describe()})

    async def set_switch(self, request: web.Request) -> web.Response:
        """The members of a `Switch`."""
        self._operator(request)
        members = await _object(request)
        return web.json_response({"number": self._room.switches.set(Switch.from_members(members))}, status=_CREATED)

    async def clear_switches(self, request: web.Request) -> web.Response:
        """Take one back, or all."""
        self._operator(request)
        number = _number(request) if "number" in request.match_info else None
        return self._found(is_found=self._room.switches.clear(number))

    async def release_switch(self, request: web.Request) -> web.Response:
        """Let go what one holds."""
        self._operator(request)
        return self._found(is_found=self._room.switches.release(_number(request)))

    def _found(self, *, is_found: bool) -> web.Response:
        if not is_found:
            raise Refusal(ErrorCode.NOT_FOUND, "there is no switch of that number")
        return web.json_response({})

    async def connections(self, request: web.Request) -> web.Response:
        """How many there are, by subscription."""
        self._operator(request)
        counts: dict[str, int] = {}
        for session in self._room.sessions:
            if session.subscription_id is not None:
                counts[session.subscription_id] = counts.get(session.subscription_id, 0) + 1
        return web.json_response({"connections": counts})

    async def cut_connections(self, request: web.Request) -> web.Response:
        """Cut all, by `?how=`."""
        self._operator(request)
        asked = request.query.get("how", Cut.RESET.value)
        if asked not in {how.value for how in Cut}:
            raise Refusal(ErrorCode.PROTOCOL, f"how: one of {', '.join(Cut)}")
        sessions = [*self._room.sessions]
        for session in sessions:
            session.cut(Cut(asked))
        return web.json_response({"cut": len(sessions)})

    # ------------------------------------------------------------ who asks, and for what
    def _credential(self, request: web.Request) -> CredentialRow:
        return self._provider.authenticate(bearer_of(request))

    def _operator(self, request: web.Request) -> None:
        if not self._credential(request).is_operator:
            raise Refusal(ErrorCode.FORBIDDEN, "only the operator may do this")

    def _managed(self, request: web.Request) -> SubscriptionRow:
        return self._provider.subscription(self._credential(request), request.match_info["id"])

    def _subscription(self, row: SubscriptionRow) -> dict[str, object]:
        return {
            "id": row.id,
            "credential": row.credential,
            "queue": row.queue,
            "enabled": row.is_enabled,
            "history_gap": row.has_gap,
            "budget": row.budget,
            "window": row.size,
            "next_sequence": str(row.next_sequence),
            "connections": self._room.of(row.id),
            "events": {state.value: count for state, count in self._provider.counts(row.id).items()},
        }


def _event(row: DeliveryRow) -> dict[str, object]:
    """Without its secret, and without the task's business."""
    standing = row.standing
    return {
        "event_id": row.event_id,
        "type": row.type,
        "sequence": str(row.sequence),
        "occurred_at": row.occurred_at,
        "task_id": row.task_id,
        "state": standing.state.value,
        "generation": str(standing.generation),
        "spent": standing.spent,
        "budget": standing.budget,
        "due_at": standing.due_at if standing.state is State.DUE else None,
        "lease_ends": standing.lease_ends if standing.state is State.LEASED else None,
    }


async def _object(request: web.Request) -> dict[str, Any]:
    try:
        members = strict_json(await request.read())
    except Undecodable:
        raise Refusal(ErrorCode.PROTOCOL, "the body is not strict JSON") from None
    if not isinstance(members, dict):
        raise Refusal(ErrorCode.PROTOCOL, "the body is not a JSON object")
    return members


async def _members(request: web.Request, kinds: dict[str, Any], *, required: tuple[str, ...]) -> dict[str, Any]:
    """The members of a body: those that are required, no others than `kinds` names, each of its kind."""
    members = await _object(request)
    for name in required:
        if name not in members:
            raise Refusal(ErrorCode.PROTOCOL, f"{name} is missing")
    for name, value in members.items():
        if name not in kinds:
            raise Refusal(ErrorCode.PROTOCOL, f"unknown member; these are known: {', '.join(kinds)}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise Refusal(ErrorCode.PROTOCOL, f"{name}: of another type")
    return members


def _queues(members: dict[str, Any]) -> tuple[str, ...]:
    if not all(isinstance(queue, str) for queue in members["queues"]):
        raise Refusal(ErrorCode.PROTOCOL, "queues: texts")
    return tuple(members["queues"])


def _uint64(name: str, text: str) -> int:
    number = uint64_of(text)
    if number is None:
        raise Refusal(ErrorCode.PROTOCOL, f"{name}: a canonical decimal number of 64 bits, as a text")
    return number


def _number(request: web.Request) -> int:
    number = uint64_of(request.match_info["number"])
    if number is None:
        raise Refusal(ErrorCode.NOT_FOUND, "there is no switch of that number")
    return number
