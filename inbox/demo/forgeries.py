"""Job events that must not be accepted: some by people without a key, and some that have only been mixed up.

Each is a genuine one with something about it changed. What must become of it is the verifier's word for it, and the
event whose id it carries is none the worse.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from inbox.core.cloudevents import Encoded
from inbox.demo.jobs import Job, Sender, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FORGERIES", "Forger", "Forgery"]

Verdict = Literal["invalid", "stale", "inconsistent"]


@dataclass(frozen=True, slots=True)
class Forgery:
    """A way to make one.

    Attributes:
        what: in words.
        verdict: what it must be refused as.
        change: from the headers of a genuine publish to what is different about them; None leaves a header out.
        body: from the body that was signed to the one that is sent.
        borrows: it carries the id of another job's genuine event, and is sent before that.
    """

    what: str
    verdict: Verdict
    change: Callable[[Forger, Job, int, Mapping[str, Any]], Mapping[str, Any]]
    body: Callable[[bytes], bytes] = field(default=lambda body: body)
    borrows: bool = False


@dataclass(frozen=True)
class Forger(Sender):
    """Who publishes it.

    Attributes:
        forgery: what they do.
        victim: the job whose genuine event they give theirs out for; None takes the job that is published.
    """

    forgery: Forgery | None = None
    victim: Job | None = None

    def encoded(self, job: Job, now: float) -> Encoded:
        """See `Sender.encoded`."""
        genuine = super().encoded(job, now)
        if self.forgery is None:
            return genuine
        changed = {**genuine.headers, **self.forgery.change(self, self.victim or job, int(now), genuine.headers)}
        headers = {name: value for name, value in changed.items() if value is not None}
        return Encoded(headers, genuine.content_type, self.forgery.body(genuine.body))


def _octets(text: str) -> bytearray:
    return bytearray(text.encode())


def _named(victim: Job) -> dict[str, Any]:
    """The headers that say which job it is."""
    return {"ce-id": _octets(victim.event_id), "ce-subject": _octets(victim.id)}


def _signed_at(seconds: int) -> Callable[[Forger, Job, int, Mapping[str, Any]], Mapping[str, Any]]:
    def change(forger: Forger, job: Job, now: int, _: Mapping[str, Any]) -> Mapping[str, Any]:
        moment = now + seconds
        signature = sign(
            forger.key,
            job.body,
            timestamp=moment,
            tenant=forger.tenant,
            job_id=job.id,
            exchange=forger.exchange,
            routing_key=job.routing_key,
        )
        return {"t": str(moment), "x-message-signature": signature}

    return change


def _body_only(forger: Forger, job: Job, now: int, _: Mapping[str, Any]) -> Mapping[str, Any]:
    """The layout of 1.x, which calls itself v1 as well."""
    digest = hmac.new(forger.key, f"{now}.".encode() + job.body, hashlib.sha256).hexdigest()
    return {"x-message-signature": digest}


FORGERIES: Final = (
    Forgery(
        "a guessed id, and no key",
        "invalid",
        lambda _, victim, __, ___: {**_named(victim), "x-message-signature": "0" * 64},
        borrows=True,
    ),
    Forgery(
        "an overheard message, and another id", "inconsistent", lambda _, victim, __, ___: _named(victim), borrows=True
    ),
    Forgery("no signature", "invalid", lambda *_: {"x-message-signature": None}),
    Forgery(
        "a signature in capitals",
        "invalid",
        lambda _, __, ___, headers: {"x-message-signature": headers["x-message-signature"].upper()},
    ),
    Forgery(
        "another amount",
        "invalid",
        lambda *_: {},
        body=lambda body: body.replace(b'"amountCents":', b'"amountCents":9'),
    ),
    Forgery("written with other spaces", "invalid", lambda *_: {}, body=lambda body: body.replace(b'":', b'": ')),
    Forgery("another version", "invalid", lambda *_: {"signature-version": "v2"}),
    Forgery("the layout of 1.x", "invalid", _body_only),
    Forgery("no time", "invalid", lambda *_: {"t": None}),
    Forgery("a time with a sign", "invalid", lambda _, __, now, ___: {"t": f"+{now}"}),
    Forgery("another tenant", "invalid", lambda *_: {"X-Tenant-ID": "tenant-closed"}),
    Forgery("a tenant that is not signed", "inconsistent", lambda *_: {"ce-tenantid": _octets("tenant-closed")}),
    Forgery("another end", "inconsistent", lambda *_: {"ce-eventtype": _octets("failed")}),
    Forgery("from the future", "stale", _signed_at(3600)),
)
