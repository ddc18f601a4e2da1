"""The management API of the reference server, by HTTP: who may do what, and what it refuses. It shows no secret."""

import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from inbox.testing.orbit_server import OrbitServer
from tests.orbit_client import RawClient, new_id


class Desk:
    """HTTP with one credential."""

    def __init__(self, server: OrbitServer, session: aiohttp.ClientSession, credential: str) -> None:
        self.server = server
        self.session = session
        self.credential = credential

    async def ask(self, method: str, path: str, body: object = None, *, status: int = 200) -> dict[str, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.credential}"}
        url = self.server.management_url + path
        async with self.session.request(method, url, data=data, headers=headers) as answer:
            said = await answer.text()
            assert answer.status == status, said
            assert self.credential not in said
            members: dict[str, Any] = json.loads(said)
            return members

    async def subscribe(self, **more: object) -> str:
        return str((await self.ask("POST", "/v1/subscriptions", {"queue": "reports", **more}, status=201))["id"])

    async def publish(self, **more: object) -> str:
        body = {"task_id": new_id(), "status": "succeeded", **more}
        published = await self.ask("POST", "/test/results/reports", body, status=201)
        return str(published["events"][0]["event_id"])

    async def other(self, name: str, queues: list[str]) -> "Desk":
        made = await self.ask("POST", "/v1/credentials", {"name": name, "queues": queues}, status=201)
        return Desk(self.server, self.session, made["credential"])


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with OrbitServer() as server, aiohttp.ClientSession() as session:
        yield Desk(server, session, server.credential)


async def test_health_asks_for_nothing_and_all_else_for_a_bearer(desk: Desk) -> None:
    async with desk.session.get(desk.server.management_url + "/v1/health") as answer:
        assert await answer.json() == {"status": "ok"}
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer x"}):
        url = desk.server.management_url + "/v1/subscriptions"
        async with desk.session.get(url, headers=headers) as answer:
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert (await answer.json())["code"] == "UNAUTHENTICATED"
    assert await Desk(desk.server, desk.session, desk.credential).ask("GET", "/v1/subscriptions")


async def test_an_event_from_its_making_to_its_end(desk: Desk) -> None:
    subscription = await desk.subscribe(budget=1, window=10)
    event = await desk.publish(n=9007199254740993)
    path = f"/v1/subscriptions/{subscription}"
    async with await RawClient.connect(desk.server.url, desk.credential) as client:
        await client.register(subscription)
        delivery = await client.receive("delivery")
        told = await desk.ask("GET", f"{path}/events/{event}")
        assert {name: told[name] for name in ("state", "generation", "spent", "budget", "due_at")} == {
            "state": "leased", "generation": "1", "spent": 1, "budget": 1, "due_at": None,
        }  # fmt: skip
        assert 29 < told["lease_ends"] - (await desk.ask("GET", "/test/clock"))["now"] <= 30
        assert delivery["delivery"]["secret"] not in json.dumps(told)
        assert (await desk.ask("POST", f"{path}/pause"))["enabled"] is False
        await desk.ask("POST", "/test/clock", {"seconds": 31})
        assert (await desk.ask("GET", f"{path}/events?state=expired"))["events"] == []
        assert (await desk.ask("POST", f"{path}/resume"))["enabled"] is True
        assert await client.ping()
        (expired,) = (await desk.ask("GET", f"{path}/events?state=expired"))["events"]
        assert (expired["event_id"], expired["lease_ends"]) == (event, None)
        added = await desk.ask("POST", f"{path}/events/{event}/budget", {"more": 2})
        assert (added["state"], added["budget"]) == ("due", 3)
        again = await client.receive("delivery")
        assert (again["delivery"]["generation"], again["event"]) == ("2", delivery["event"])
        await client.ack(again)
    told = await desk.ask("GET", path)
    assert told["events"] == {"due": 0, "leased": 0, "expired": 0, "acknowledged": 1}
    assert (told["window"], told["budget"], told["next_sequence"]) == (10, 1, "2")
    await desk.ask("POST", f"{path}/events/{event}/budget", {"more": 1}, status=409)
    assert [each["id"] for each in (await desk.ask("GET", "/v1/subscriptions"))["subscriptions"]] == [subscription]


async def test_the_body_of_a_result_is_the_snapshot_octet_for_octet(desk: Desk) -> None:
    subscription = await desk.subscribe()
    body = b'\n{"task_id" : "' + new_id().encode() + b'","status":"failed", "n":123456789012345678901234567890}\n'
    await desk.ask("POST", "/test/results/reports?type=task.failed", body, status=201)
    async with await RawClient.connect(desk.server.url, desk.credential) as client:
        await client.register(subscription)
        assert body.strip().decode() in await client.text()


async def test_credentials_reach_as_far_as_they_are_given(desk: Desk) -> None:
    mail = await desk.other("mail", ["reports"])
    subscription = await mail.subscribe()
    path = f"/v1/subscriptions/{subscription}"
    stranger = await desk.other("stranger", ["*"])
    await mail.ask("POST", "/v1/subscriptions", {"queue": "invoices"}, status=403)
    await mail.ask("POST", "/test/results/invoices", {"task_id": new_id(), "status": "succeeded"}, status=403)
    for method, rest in (("GET", ""), ("POST", "/pause"), ("GET", "/events")):
        await stranger.ask(method, path + rest, status=403)
        await desk.ask(method, path + rest)
    await stranger.ask("GET", f"/v1/subscriptions/{new_id()}", status=404)
    for method, place in (
        ("POST", "/v1/credentials"), ("PATCH", "/v1/credentials/mail"), ("DELETE", "/v1/credentials/mail"),
        ("GET", "/test/clock"), ("POST", "/test/clock"), ("GET", "/test/switches"), ("POST", "/test/switches"),
        ("DELETE", "/test/switches"), ("DELETE", "/test/switches/1"), ("POST", "/test/switches/1/release"),
        ("GET", "/test/connections"), ("DELETE", "/test/connections"), ("POST", f"/test/subscriptions/{new_id()}/trim"),
    ):  # fmt: skip
        await mail.ask(method, place, {}, status=403)
    await desk.ask("PATCH", "/v1/credentials/mail", {"queues": ["invoices"]})
    async with await RawClient.connect(desk.server.url, mail.credential) as client:
        client.send(type="register", message_id=(message := new_id()), subscription_id=subscription, capacity=1)
        assert await client.refusal(message) == "FORBIDDEN"
    await desk.ask("DELETE", "/v1/credentials/mail")
    await mail.ask("GET", "/v1/subscriptions", status=401)
    await desk.ask("POST", "/v1/credentials", {"name": "mail", "queues": ["*"]}, status=409)
    await desk.ask("DELETE", "/v1/credentials/nobody", status=404)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/subscriptions", b"", 400),
        ("POST", "/v1/subscriptions", b"[]", 400),
        ("POST", "/v1/subscriptions", b'{"queue": "a", "queue": "a"}', 400),
        ("POST", "/v1/subscriptions", {}, 400),
        ("POST", "/v1/subscriptions", {"queue": 7}, 400),
        ("POST", "/v1/subscriptions", {"queue": "A b"}, 400),
        ("POST", "/v1/subscriptions", {"queue": "a", "budget": True}, 400),
        ("POST", "/v1/subscriptions", {"queue": "a", "budget": 0}, 400),
        ("POST", "/v1/subscriptions", {"queue": "a", "colour": 1}, 400),
        ("POST", "/v1/subscriptions", {"queue": "a", "first_generation": "01"}, 400),
        ("POST", "/v1/credentials", {"name": "a", "queues": [1]}, 400),
        ("POST", "/v1/credentials", {"name": "a", "queues": []}, 400),
        ("POST", "/test/results/reports", b"x" * (1024 * 1024 + 1), 413),
        ("POST", "/test/results/reports", {"status": "succeeded"}, 400),
        ("POST", "/test/clock", {"seconds": -1}, 400),
        ("POST", "/test/clock", b'{"seconds": 1e999}', 400),
        ("POST", "/test/switches", {"act": "dance", "frame": "ack"}, 400),
        ("DELETE", "/test/switches/7", None, 404),
        ("DELETE", "/test/switches/seven", None, 404),
        ("POST", "/test/switches/7/release", None, 404),
        ("DELETE", "/test/connections?how=gently", None, 400),
        ("POST", f"/test/subscriptions/{'0' * 32}/trim", None, 404),
        ("GET", "/v1/events", None, 400),
    ],
)
async def test_what_it_does_not_take(desk: Desk, method: str, path: str, body: object, status: int) -> None:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {desk.credential}"}
    url, given = desk.server.management_url + path, None if data is None else io.BytesIO(data)
    async with desk.session.request(method, url, data=given, headers=headers) as answer:
        assert answer.status == status


async def test_states_are_named(desk: Desk) -> None:
    subscription = await desk.subscribe()
    await desk.ask("GET", f"/v1/subscriptions/{subscription}/events?state=lost", status=400)
    await desk.ask("GET", f"/v1/subscriptions/{subscription}/events/{new_id()}", status=404)


async def test_switches_and_connections_by_http(desk: Desk) -> None:
    subscription = await desk.subscribe()
    number = (await desk.ask("POST", "/test/switches", {"act": "hold", "frame": "pong"}, status=201))["number"]
    async with await RawClient.connect(desk.server.url, desk.credential) as client:
        await client.register(subscription)
        message = client.send_ping()
        await desk.server.switches.wait_hit(number)
        (told,) = (await desk.ask("GET", "/test/switches"))["switches"]
        assert (told["number"], told["hits"], told["frame"]) == (number, 1, "pong")
        await desk.ask("POST", f"/test/switches/{number}/release")
        assert (await client.receive("pong"))["reply_to"] == message
        assert (await desk.ask("GET", "/test/connections"))["connections"] == {subscription: 1}
        assert (await desk.ask("DELETE", "/test/connections?how=close"))["cut"] == 1
        assert await client.end() == 1012
    await desk.ask("DELETE", f"/test/switches/{number}")
    await desk.ask("DELETE", "/test/switches")


async def test_a_gap_and_a_replaced_proof_by_http(desk: Desk) -> None:
    subscription = await desk.subscribe(window=1)
    event = await desk.publish()
    replaced = await desk.ask("POST", f"/test/subscriptions/{subscription}/events/{event}/replace")
    assert replaced["generation"] == "1"
    await desk.publish()
    assert (await desk.ask("POST", f"/test/subscriptions/{subscription}/trim"))["dropped"] == 1
    assert (await desk.ask("GET", f"/v1/subscriptions/{subscription}"))["history_gap"] is True
