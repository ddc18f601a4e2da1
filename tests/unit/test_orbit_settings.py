"""What a subscription is told, and proofs that are sealed for storage."""

import copy
import pickle
import traceback
from dataclasses import replace
from typing import Any

import pytest

from inbox.adapters.websocket.codec import TaskEvent
from inbox.adapters.websocket.consumer import EventConsumer
from inbox.adapters.websocket.sealing import ProofSeal, SealBroken, SealingKey, key_id_of
from inbox.adapters.websocket.settings import Credential, EventRegistration, OrbitSettings, tls_context
from inbox.adapters.websocket.transport import OrbitTransport
from inbox.core.proof import Proof
from inbox.errors import ConfigurationError
from tests.unit.orbit_frames import SECRET, SUBSCRIPTION, frame_of

URL = "wss://orbit.example/v1/events"
TOKEN = "bearer-token-that-nobody-may-see"


async def handle(event: TaskEvent) -> None: ...


# ---------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 0}, "between 1 and 32"),
        ({"capacity": 33}, "between 1 and 32"),
        ({"capacity": True}, "whole number"),
        ({"capacity": 4.0}, "whole number"),
        ({"capacity": "4"}, "whole number"),
        ({"shutdown_timeout": 0}, "between 0.001 and 300 seconds"),
        ({"shutdown_timeout": 0.0009}, "between 0.001 and 300 seconds"),
        ({"shutdown_timeout": 300.1}, "between 0.001 and 300 seconds"),
        ({"shutdown_timeout": float("nan")}, "between"),
        ({"shutdown_timeout": None}, "between"),
        ({"reconnect_min_delay": 0.0099}, "between 0.01 and 30 seconds"),
        ({"reconnect_min_delay": 6.0}, "at least reconnect_min_delay"),
        ({"reconnect_max_delay": 30.1}, "between 0.01 and 30 seconds"),
        ({"reconnect_max_delay": 0.1}, "at least reconnect_min_delay"),
        ({"reconnect_max_delay": True}, "between"),
        ({"unit_deadline": 0}, "unit_deadline"),
        ({"quarantine": "all"}, "quarantine must be"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        OrbitSettings(**changes)


def test_the_ends_of_the_ranges_are_allowed_and_the_defaults_are_the_contracts() -> None:
    assert OrbitSettings() == OrbitSettings(4, 30.0, 0.2, 5.0)
    for changes in (
        {"capacity": 1}, {"capacity": 32}, {"shutdown_timeout": 0.001}, {"shutdown_timeout": 300},
        {"reconnect_min_delay": 0.01}, {"reconnect_min_delay": 30, "reconnect_max_delay": 30},
    ):  # fmt: skip
        OrbitSettings(**changes)


def test_the_environment_says_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INBOX_ORBIT_CAPACITY", "7")
    monkeypatch.setenv("INBOX_ORBIT_QUARANTINE", "rejected")
    assert OrbitSettings.from_env() == OrbitSettings(capacity=7, quarantine="rejected")


def test_a_unit_ends_before_its_lease_unless_it_is_said_otherwise() -> None:
    terms = OrbitTransport(URL, SUBSCRIPTION, Credential(TOKEN)).lease_terms
    assert terms.unit_deadline < 30
    assert (terms.shutdown_timeout, terms.quarantines) == (30, "nothing")
    longer = OrbitSettings(unit_deadline=60)
    assert OrbitTransport(URL, SUBSCRIPTION, Credential(TOKEN), longer).lease_terms.unit_deadline == 60


@pytest.mark.parametrize(
    "url",
    [
        "", "orbit.example", "https://orbit.example/", "wss://", "wss:///events", "wss://orbit.example:port/",
        "wss://orbit.example/#part", f"wss://user:{TOKEN}@orbit.example/", f"wss://{TOKEN}@orbit.example/",
        "ws://orbit.example/", "ws://10.0.0.1/", "ws://localhost.example/", "ws://127.0.0.1.example/", None, 5,
    ],
)  # fmt: skip
def test_an_address_that_is_none_or_shows_the_credential_is_refused_unseen(url: Any) -> None:
    for make in (OrbitTransport, EventConsumer):
        more = (handle,) if make is EventConsumer else ()
        with pytest.raises(ConfigurationError) as caught:
            make(url, SUBSCRIPTION, Credential(TOKEN), *more)
        assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:8/", "ws://localhost/", "ws://[::1]:8/x", "wss://orbit.example:444/x?y=1"]
)
def test_an_address_that_is_right(url: str) -> None:
    EventRegistration(url, Credential(TOKEN), SUBSCRIPTION, 1)


def test_plain_text_to_another_host_has_to_be_allowed() -> None:
    transport = OrbitTransport("ws://orbit:8080/", SUBSCRIPTION, Credential(TOKEN), OrbitSettings(plaintext=True))
    assert transport.describe()["platform"] == "orbit:8080"


@pytest.mark.parametrize("subscription", ["", "A" * 32, "a" * 31, "a" * 33, None, 5])
def test_a_subscription_has_an_id(subscription: Any) -> None:
    with pytest.raises(ConfigurationError, match="32 lower-case"):
        EventRegistration(URL, Credential(TOKEN), subscription, 1)


@pytest.mark.parametrize("capacity", [0, 33, None, "4", True])
def test_a_registration_says_its_capacity(capacity: Any) -> None:
    with pytest.raises(ConfigurationError, match="capacity"):
        EventRegistration(URL, Credential(TOKEN), SUBSCRIPTION, capacity)
    with pytest.raises(TypeError):
        EventRegistration(URL, Credential(TOKEN), SUBSCRIPTION)  # type: ignore[call-arg] # it has no default


def test_a_credential_is_no_bare_text_and_a_handler_can_be_called() -> None:
    with pytest.raises(ConfigurationError, match=r"Credential\(text\)"):
        EventRegistration(URL, TOKEN, SUBSCRIPTION, 1)  # type: ignore[arg-type] # what is tested
    with pytest.raises(ConfigurationError, match="handler"):
        EventConsumer(URL, SUBSCRIPTION, Credential(TOKEN), None)  # type: ignore[arg-type] # what is tested


@pytest.mark.parametrize("text", ["", "two words", "line\r\nX-More: 1", "tab\t", "\x7f", "é", None, b"octets"])
def test_a_credential_is_what_a_header_can_hold(text: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Credential(text)
    inside = caught.value.with_traceback(caught.tb.tb_next)
    shown = "".join(traceback.TracebackException.from_exception(inside, capture_locals=True).format())
    assert not text or "X-More" not in shown


def test_nothing_shows_the_credential() -> None:
    credential = Credential(TOKEN)
    transport = OrbitTransport(URL, SUBSCRIPTION, credential)
    consumer = EventConsumer(URL, SUBSCRIPTION, credential, handle)
    registration = EventRegistration(URL, credential, SUBSCRIPTION, 1)
    for shown in (
        credential,
        transport,
        consumer,
        registration,
        transport.describe(),
        replace(registration, capacity=2),
    ):
        assert TOKEN not in f"{shown!r}{shown}"
    assert copy.deepcopy(credential) is credential
    for held in (credential, registration):
        with pytest.raises(TypeError):
            pickle.dumps(held)


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Any) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "ca.pem", tmp_path / "absent.pem"):
        with pytest.raises(ConfigurationError, match="PEM"):
            tls_context(str(path))
    assert tls_context(None).check_hostname


# ---------------------------------------------------------------- sealed proofs
def proof() -> Proof:
    return frame_of(2**63 + 1).proof


def test_a_sealed_proof_is_opened_and_shows_nothing() -> None:
    seal = ProofSeal([SealingKey.generate()])
    sealed = seal.close(proof())
    assert seal.open(sealed) == proof()
    assert SECRET.encode() not in sealed
    assert proof().event_id.encode() not in sealed
    assert seal.close(proof()) != sealed


def test_keys_rotate() -> None:
    old, new = SealingKey.generate(), SealingKey.generate()
    sealed = ProofSeal([old]).close(proof())
    both = ProofSeal([new, old])
    assert both.open(sealed) == proof()
    assert (key_id_of(sealed), both.is_current(sealed)) == (old.id, False)
    again = both.close(both.open(sealed))
    assert (key_id_of(again), both.is_current(again)) == (new.id, True)
    with pytest.raises(SealBroken, match="not among"):
        ProofSeal([new]).open(sealed)
    assert ProofSeal([new]).open(again) == proof()


def test_every_changed_octet_is_found() -> None:
    seal = ProofSeal([SealingKey.generate()])
    sealed = seal.close(proof())
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(SealBroken):
            seal.open(bytes(changed))
    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            seal.open(sealed[:length])
    with pytest.raises(SealBroken):
        seal.open(sealed + b"\0")


def test_what_was_sealed_and_is_no_proof_is_not_shown() -> None:
    key = SealingKey.generate()
    seal = ProofSeal([key])
    head = b"\x01" + bytes.fromhex(key.id)
    nonce = b"n" * 12
    sealed = head + nonce + seal._ciphers[key.id].encrypt(nonce, f'{{"secret":"{SECRET}"}}'.encode(), head)
    with pytest.raises(SealBroken) as caught:
        seal.open(sealed)
    inside = caught.value.with_traceback(caught.tb.tb_next)
    assert SECRET not in "".join(traceback.TracebackException.from_exception(inside, capture_locals=True).format())
    assert inside.__context__ is None


@pytest.mark.parametrize("text", ["", "short", "A" * 42, "A" * 45, "!" * 43, "é" * 43])
def test_a_sealing_key_has_32_octets(text: str) -> None:
    with pytest.raises(ConfigurationError, match="32 octets") as caught:
        SealingKey(text)
    assert not text or text not in str(caught.value)


def test_a_seal_has_keys_each_once_and_shows_none() -> None:
    key = SealingKey.generate()
    with pytest.raises(ConfigurationError, match="needs a key"):
        ProofSeal([])
    with pytest.raises(ConfigurationError, match="twice"):
        ProofSeal([key, SealingKey(key.reveal().rstrip("="))])
    assert key.reveal() not in f"{key!r}{ProofSeal([key])!r}"
    assert key.id in repr(key)
    with pytest.raises(TypeError):
        pickle.dumps(key)
