"""Stored results out of a real S3 server, and out of servers that fail in every way that one can."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from inbox.errors import ConfigurationError
from inbox.fetcher import (
    ResultMalformed,
    ResultNotAuthentic,
    ResultNotDecryptable,
    ResultNotFound,
    ResultReader,
    ResultTooLarge,
    ResultUnreachable,
    S3Objects,
)
from tests.integration.s3_server import S3Server, s3_server
from tests.unit.fetcher_results import EXTERNAL, KEYS, PATH, RESULTS, STORAGE, sealed, stored

BUCKET = "fetcher-storage"
PLAIN = b'{"db":{"t":[{"id":1},{"id":2}]}}'
OTHER = bytes(32)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        server.put(BUCKET)
        yield server


def objects_at(endpoint: str, *, bucket: str = BUCKET, timeout: float = 20, retries: int = 0) -> S3Objects:
    return S3Objects(
        bucket,
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="reader",
        secret_access_key="hunter2",
        timeout=timeout,
        retries=retries,
    )


def reader_at(s3: S3Server, prefix: str, *, keys: bytes = EXTERNAL, storage: bytes = STORAGE) -> ResultReader:
    return ResultReader(objects_at(s3.endpoint), keys=[keys], storage_keys=[storage], prefix=prefix)


# ------------------------------------------------------------------ a server that works
async def test_what_the_provider_stored_is_read(s3: S3Server) -> None:
    typical = RESULTS[0]
    s3.put(BUCKET, f"eu/prod-{PATH}", typical["object"].encode())
    keys = KEYS[typical["key"]]
    reader = ResultReader(
        objects_at(s3.endpoint), keys=keys["external"], storage_keys=keys["storage"], prefix="eu/prod-"
    )
    said = stored(typical["plaintext"].encode(), typical["rows"], hmac=typical["hmac"])
    result = await reader.read(said)
    assert bytes(result.plaintext) == typical["plaintext"].encode()
    assert [row.values["id"] for row in result.rows("onboarding", "organization")] == [1, 2]


async def test_many_are_read_at_once(s3: S3Server) -> None:
    plaintext = b'{"db":{"t":[' + b",".join([b'{"v":"%s"}' % (b"x" * 1000)] * 3000) + b"]}}"
    s3.put(BUCKET, f"large/{PATH}", sealed(plaintext))
    reader = reader_at(s3, "large/")
    results = await asyncio.gather(*(reader.read(stored(plaintext, 3000)) for _ in range(4)))
    assert all(bytes(result.plaintext) == plaintext for result in results)


@pytest.mark.parametrize("path", ["a b/ü+%20.json", "t~*|'#?&.json", "a%2e%2e/x.json"])
async def test_a_key_is_what_it_is_whatever_it_holds(s3: S3Server, path: str) -> None:
    s3.put(BUCKET, f"odd/{path}", sealed(PLAIN))
    assert (await reader_at(s3, "odd/").read(stored(PLAIN, 2, path=path))).row_count == 2


async def test_what_is_wrong_with_an_object_is_found(s3: S3Server) -> None:
    content = sealed(PLAIN)
    changed = content[:30] + (b"A" if content[30:31] != b"A" else b"B") + content[31:]
    s3.put(BUCKET, f"good/{PATH}", content)
    s3.put(BUCKET, f"cut/{PATH}", content[:-4])
    s3.put(BUCKET, f"changed/{PATH}", changed)
    s3.put(BUCKET, f"other/{PATH}", sealed(PLAIN.replace(b"1", b"3")))
    s3.put(BUCKET, f"larger/{PATH}", content * 100_000)
    s3.put(BUCKET, f"empty/{PATH}", b"")
    said = stored(PLAIN, 2)
    assert (await reader_at(s3, "good/").read(said)).row_count == 2
    for prefix, error in (
        ("missing/", ResultNotFound),
        ("cut/", ResultNotDecryptable),
        ("changed/", ResultNotDecryptable),
        ("other/", ResultNotAuthentic),
        ("larger/", ResultTooLarge),
        ("empty/", ResultNotDecryptable),
    ):
        with pytest.raises(error):
            await reader_at(s3, prefix).read(said)
    with pytest.raises(ResultNotDecryptable):
        await reader_at(s3, "good/", storage=OTHER).read(said)
    with pytest.raises(ResultNotAuthentic):
        await reader_at(s3, "good/", keys=OTHER).read(said)
    with pytest.raises(ResultMalformed):
        await reader_at(s3, "good/").read(stored(PLAIN, 0))


async def test_a_bucket_that_is_not_there_holds_nothing(s3: S3Server) -> None:
    reader = ResultReader(objects_at(s3.endpoint, bucket="nowhere"), keys=[EXTERNAL], storage_keys=[STORAGE])
    with pytest.raises(ResultNotFound):
        await reader.read(stored(PLAIN, 2))


# ------------------------------------------------------------------ servers that fail
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server_that(answer: Answer) -> AsyncIterator[tuple[str, list[str]]]:
    """Its address, and the requests that it was sent."""
    requests: list[str] = []
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                requests.append(head.decode().splitlines()[0])
                await answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


def saying(head: str, body: bytes = b"", *, closing: bool = False) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(
            f'HTTP/1.1 {head}\r\nETag: "1"\r\nLast-Modified: Wed, 01 Jul 2026 00:00:00 GMT\r\n\r\n'.encode() + body
        )
        await writer.drain()
        if closing:
            writer.close()

    return answer


async def silence(writer: asyncio.StreamWriter) -> None:
    """Nothing is said, and nothing ends."""


FAILURES = {
    "an error of the server": saying("503 Slow Down\r\nContent-Length: 0"),
    "no right to read": saying("403 Forbidden\r\nContent-Length: 0"),
    "another place": saying("307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0"),
    "no HTTP": saying("x"),
    "a body that is cut": saying("200 OK\r\nContent-Length: 84", b"QUJD", closing=True),
    "a body that stops": saying("200 OK\r\nContent-Length: 84", b"QUJD"),
    "silence": silence,
}


@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES)
async def test_a_store_that_fails_is_asked_again_later(answer: Answer) -> None:
    async with server_that(answer) as (endpoint, requests):
        reader = ResultReader(objects_at(endpoint, timeout=0.5), keys=[EXTERNAL], storage_keys=[STORAGE])
        began = time.monotonic()
        with pytest.raises(ResultUnreachable) as caught:
            await reader.read(stored(PLAIN, 2))
        assert time.monotonic() - began < 5
        assert requests[0] == f"GET /{BUCKET}/{PATH} HTTP/1.1"
        assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"


async def test_a_request_that_fails_is_repeated_as_often_as_it_is_told() -> None:
    async with server_that(FAILURES["an error of the server"]) as (endpoint, requests):
        reader = ResultReader(objects_at(endpoint, timeout=5, retries=2), keys=[EXTERNAL], storage_keys=[STORAGE])
        with pytest.raises(ResultUnreachable):
            await reader.read(stored(PLAIN, 2))
        assert len(requests) == 3


async def test_nobody_listens() -> None:
    reader = ResultReader(objects_at("http://127.0.0.1:1"), keys=[EXTERNAL], storage_keys=[STORAGE])
    with pytest.raises(ResultUnreachable):
        await reader.read(stored(PLAIN, 2))


async def test_a_read_can_be_cancelled() -> None:
    async with server_that(silence) as (endpoint, requests):
        reader = ResultReader(objects_at(endpoint), keys=[EXTERNAL], storage_keys=[STORAGE])
        reading = asyncio.create_task(reader.read(stored(PLAIN, 2)))
        async with asyncio.timeout(10):
            while not requests:
                await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading


# ------------------------------------------------------------------ settings
def test_settings_come_from_the_environment_where_they_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
        monkeypatch.setenv(f"AWS_{name}", "hunter2")
    assert repr(S3Objects(BUCKET)) == f"S3Objects({BUCKET!r})"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bucket": ""}, "the name of a bucket"),
        ({"access_key_id": "reader"}, "go together"),
        ({"endpoint": "minio:9000"}, "must begin with https"),
        ({"timeout": 0}, "more than 0 seconds"),
        ({"retries": -1}, "retries 0 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        S3Objects(**({"bucket": BUCKET} | options))  # type: ignore[arg-type]


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'idempotent-inbox\[s3\]'"):
        S3Objects(BUCKET)
