"""The example's publisher: what it would send, without a broker."""

import json
import random

import pytest

from examples.billing.publisher import Worker, external_key, main, make_jobs, summary_of, with_duplicates
from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery
from inbox.core.event import strict_json
from inbox.demo.jobs import json_body, sign

# Made by the provider's own signer; the keys are test keys.
KEYS = {
    "one": bytes.fromhex("ec9eedfd0b245950528714e5328ff2c2639ab32540a309f1cd68685ceaff9dfe"),
    "three": bytes.fromhex("45e6f7213df583935694b4be99d8e89c27758e4bd0108411ae885e14c7d94ac7"),
}
JOB = "01979c3a-7c1e-7b52-9a53-3f6d1c2b4e5f"
FAILED = (
    f'{{"jobId":"{JOB}","metadata":{{"correlationId":"c-42","error":{{"message":"engine extraction: dial tcp '
    '[redacted] connect: connection refused"},"source":"plugin_crm"},"status":"failed"}'
).encode()
COMPLETED = (
    f'{{"jobId":"{JOB}","metadata":{{"correlationId":"c-42","source":"plugin_crm"}},"status":"completed",'
    f'"result":{{"path":"external-data/{JOB}.json","sizeBytes":229,"rowCount":2,"format":"json",'
    '"hmac":"5d173131feadbe6063459769060d1567cef6c65e8ff4f1d3d8cea7fdbf09833a","integrity":{"algorithm":"HMAC-SHA256",'
    '"signature":"5d173131feadbe6063459769060d1567cef6c65e8ff4f1d3d8cea7fdbf09833a"},"protection":{"encrypted":true,'
    '"mode":"adapter-managed","appliedBy":"adapter"}},"executionTimeMs":1834,'
    '"completedAt":"2026-06-25T14:19:58.123456789Z"}'
).encode()


def drawn(seed: int = 1) -> random.Random:
    return random.Random(seed)  # noqa: S311 - test data


def test_the_signature_of_a_completed_job_is_the_providers() -> None:
    signature = sign(
        KEYS["one"],
        COMPLETED,
        timestamp=1782397200,
        tenant="single-tenant",
        job_id=JOB,
        exchange="fetcher.job.events",
        routing_key="job.completed",
    )
    assert signature == "776b51e10bc52003b5c466de4b011f41888eac241b4c5f7bb81892083b5c7c19"


def test_the_signature_of_a_failed_job_is_the_providers() -> None:
    signature = sign(
        KEYS["three"],
        FAILED,
        timestamp=1782397202,
        tenant="9b2f4c1e-3d5a-4f8b-9c7d-1e2f3a4b5c6d",
        job_id=JOB,
        exchange="fetcher.job.events",
        routing_key="job.failed",
    )
    assert signature == "f3ce57b2be161848816b279b394efabb00a4cb6476eb59e9a2c69dfe74ab5fa6"


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_message_is_genuine(status: str) -> None:
    worker = Worker("fetcher.job.events", "single-tenant", KEYS["one"])
    (job,) = make_jobs(1, float(status == "failed"), worker.key, drawn())
    message = worker.message_of(job, 1782397200.25)
    event = decode(Delivery(message.body, message.headers, message.content_type))
    assert event.id == f"fetcher.job.{status}.{job.id}"
    assert event.time_text == "2026-06-25T14:20:00.250000Z"
    assert event.extensions == {
        "schemaversion": "1.0.0",
        "resourcetype": "job",
        "eventtype": status,
        "tenantid": "single-tenant",
    }
    assert all(type(value) is bytearray for name, value in message.headers.items() if name.startswith("ce-"))
    assert message.headers["t"] == "1782397200"
    assert message.headers["x-retry-count"] == 0
    assert (message.message_id, message.timestamp) == (None, None)
    assert strict_json(message.body)["jobId"] == event.subject == job.id


def test_publishing_again_changes_what_belongs_to_the_publish_only() -> None:
    worker = Worker("fetcher.job.events", "single-tenant", KEYS["one"])
    (job,) = make_jobs(1, 0, worker.key, drawn())
    first, again = worker.message_of(job, 1.0), worker.message_of(job, 2.0)
    changed = {name for name in first.headers if first.headers[name] != again.headers[name]}
    assert changed == {"ce-time", "t", "x-message-signature", "X-Request-Id"}
    assert first.body == again.body


def test_the_same_seed_makes_the_same_events() -> None:
    assert make_jobs(20, 0.5, KEYS["one"], drawn(3)) == make_jobs(20, 0.5, KEYS["one"], drawn(3))
    assert make_jobs(20, 0.5, KEYS["one"], drawn(3)) != make_jobs(20, 0.5, KEYS["one"], drawn(4))


def test_the_failed_share_is_kept() -> None:
    jobs = make_jobs(40, 0.25, KEYS["one"], drawn())
    assert sum(job.status == "failed" for job in jobs) == 10
    assert len({job.id for job in jobs}) == 40


def test_zero_values_are_left_out() -> None:
    bodies = [json.loads(job.body) for job in make_jobs(40, 0, KEYS["one"], drawn())]
    counts = [body["result"].get("rowCount") for body in bodies]
    assert None in counts
    assert 0 not in counts


def test_json_is_escaped_as_the_worker_escapes_it() -> None:
    assert json_body({"a": "<é>&\u2028\u2029"}) == '{"a":"\\u003cé\\u003e\\u0026\\u2028\\u2029"}'.encode()


def test_duplicates_follow_their_event() -> None:
    jobs = make_jobs(10, 0, KEYS["one"], drawn())
    order = with_duplicates(jobs, 30, drawn())
    assert [job for job, again in order if not again] == jobs
    seen = set()
    for job, again in order:
        assert again == (job.id in seen)
        seen.add(job.id)
    assert summary_of("x", 1, order)["published"] == 40


@pytest.mark.parametrize("text", ["", "zz", "00" * 31, "00" * 33])
def test_a_key_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^FETCHER_EXTERNAL_HMAC_KEY must be 64 hex digits$"):
        external_key(text)


def test_without_a_key_nothing_is_published(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FETCHER_EXTERNAL_HMAC_KEY", raising=False)
    assert main(["--amqp-url", "amqp://nowhere"]) == 1
    assert capsys.readouterr().err == "publisher: FETCHER_EXTERNAL_HMAC_KEY must be 64 hex digits\n"


@pytest.mark.parametrize(
    "words", [[], ["--count", "0"], ["--failed-share", "2"], ["--rate", "-1"], ["--duplicates", "-1"]]
)
def test_wrong_words_are_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BILLING_AMQP_URL", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["--amqp-url", "amqp://nowhere", *words] if words else [])
    assert ended.value.code == 2
