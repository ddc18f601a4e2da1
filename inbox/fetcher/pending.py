"""Asking the provider how jobs have ended, for whoever waits for an event that does not come.

An event can be lost before it is in any queue of ours (job event contract, section 4). The authority is the
provider's `GET /v1/fetcher/{id}`. It is asked about jobs that the operator names, and all that its answers tell is
which events there must have been. Needs the extra `fetcher`.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from inbox.config import require
from inbox.core.event import strict_json
from inbox.errors import ConfigurationError, InboxError, Undecodable
from inbox.fetcher.models import STATUSES, Status, event_id_of, is_job_id
from inbox.fetcher.moments import parse_moment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    import httpx

__all__ = ["AUTHORIZATION_VARIABLE", "ApiRefused", "ApiUnavailable", "JobState", "JobsApi", "read_ids"]

#: The variable with the whole value of the header `Authorization`, such as `Bearer …`.
AUTHORIZATION_VARIABLE: Final = "FETCHER_API_AUTHORIZATION"

#: Octets of an answer: the requester's metadata, at most 1 MiB of it, comes back in it.
_LONGEST_ANSWER: Final = 4 << 20
#: Jobs that are asked about in one run.
_MOST_IDS: Final = 1_000_000
_LONGEST_LINE: Final = 1024
#: Seconds that the provider may ask to wait, and that a repetition waits at most.
_LONGEST_WAIT: Final = 60.0
_FIRST_WAIT: Final = 0.5
_VISIBLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")

_OK: Final = 200
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500


class ApiUnavailable(InboxError):
    """The provider did not answer about a job, also when asked again."""


class ApiRefused(InboxError):
    """The provider refuses everybody who asks like this; asking about the next job would not help."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What the provider says of a job.

    Attributes:
        job_id: which.
        ended: how; None while it has not.
        completed_at: when, as it was written; None where that is not said, or is no time.
    """

    job_id: str
    ended: Status | None
    completed_at: str | None = None

    @property
    def event_id(self) -> str | None:
        """The `ce-id` of the event that there must have been; None where it has not ended."""
        return None if self.ended is None else event_id_of(self.job_id, self.ended)


def read_ids(lines: Iterable[str]) -> list[str]:
    """Job ids, one a line, each once. Empty lines are left out, and what follows a #.

    Raises:
        ConfigurationError: a line is none, or there are more than a million. The message tells the line's number.
    """
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        text = line[:_LONGEST_LINE].partition("#")[0].strip().removeprefix("\ufeff")
        if text:
            require(is_job_id(text), f"line {number}: no job id, which is a lower-case UUID with hyphens")
            found[text] = None
            require(len(found) <= _MOST_IDS, f"more than {_MOST_IDS:,} job ids: ask in several runs")
    return [*found]


class JobsApi:
    """The provider's REST API, asked for one job at a time, by as many at once as like. An async context manager.

    A question that meets 429, an error of the server or a broken connection is repeated, after as long as `Retry-After`
    says, or a little longer each time; while one was told to wait, none is asked.

    Args:
        url: of the API, up to and without `/v1/fetcher`.
        authorization: the whole value of the header `Authorization`; None sends none.
        timeout: seconds without a sign of life, after which a question has failed; altogether it may take six times
            as long.
        tries: of one question, the first included.

    Raises:
        ConfigurationError: httpx is not installed, or a setting is malformed. The message holds no secret.
    """

    def __init__(self, url: str, *, authorization: str | None = None, timeout: float = 10.0, tries: int = 4) -> None:
        require(timeout > 0 and tries >= 1, "timeout must be more than 0 seconds, and tries at least 1")
        self._url = _checked(url)
        if authorization is not None and not _VISIBLE.fullmatch(authorization):
            raise ConfigurationError(f"{AUTHORIZATION_VARIABLE} must be one line of ASCII, such as Bearer and a token")
        try:
            import httpx  # noqa: PLC0415 - an extra, asked for where it is used
        except ModuleNotFoundError:
            raise ConfigurationError("asking about jobs needs httpx: pip install 'idempotent-inbox[fetcher]'") from None
        self._tries = tries
        self._patience = 6 * timeout
        self._not_before = 0.0
        self._failure = httpx.HTTPError
        # Not compressed: what is small on the wire could be large here.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if authorization is not None:
            headers["Authorization"] = authorization
        # No redirects: they could lead the header to somebody else.
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, follow_redirects=False)
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return "<JobsApi>"

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def state(self, job_id: str) -> JobState | None:
        """What the provider says of a job; None where it knows none of that id.

        Raises:
            ApiUnavailable: it does not answer, or not in a way that can be understood. The message says how.
            ApiRefused: it refuses whoever asks.
        """
        said = ""
        for turn in range(self._tries):
            await self._wait_turn()
            wait = None
            try:
                async with asyncio.timeout(self._patience):
                    status, body, wait = await self._ask(job_id)
            except (self._failure, TimeoutError) as error:
                said = type(error).__name__
            else:
                if status != _TOO_MANY and status < _SERVER_ERRORS:
                    return _state_of(job_id, status, body)
                said = f"HTTP {status}"
            if turn + 1 == self._tries or (wait is not None and wait > _LONGEST_WAIT):
                break
            await self._pause(wait, turn)
        raise ApiUnavailable(f"the provider does not answer ({said})")

    async def _wait_turn(self) -> None:
        while (left := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110 - a time, which may be put off
            await asyncio.sleep(left)

    async def _pause(self, asked_for: float | None, turn: int) -> None:
        if asked_for is None:
            await asyncio.sleep(min(_FIRST_WAIT * 2**turn, _LONGEST_WAIT) * random.uniform(0.5, 1))  # noqa: S311 - jitter
        else:
            # It means whoever asks here, and not the one question.
            self._not_before = max(self._not_before, time.monotonic() + asked_for)

    async def _ask(self, job_id: str) -> tuple[int, bytes, float | None]:
        async with self._client.stream("GET", f"{self._url}/v1/fetcher/{job_id}") as answer:
            body = b"" if answer.status_code != _OK else await _body_of(answer)
            return answer.status_code, body, _seconds_of(answer.headers.get("Retry-After"))


def _checked(url: str) -> str:
    """The address, if it is one that can be asked.

    Raises:
        ConfigurationError: it is none, or holds what belongs into the environment.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigurationError("the address of the API is none: write https://host, or https://host/path") from None
    require(
        parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment,
        "the address of the API is none: write https://host, or https://host/path",
    )
    require(
        parts.username is None and parts.password is None,
        f"the address of the API holds a password, which others can read there: put it into {AUTHORIZATION_VARIABLE}",
    )
    return url.rstrip("/")


async def _body_of(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > _LONGEST_ANSWER:
            raise ApiUnavailable(f"the provider's answer has more than {_LONGEST_ANSWER:,} octets")
    return bytes(body)


def _seconds_of(text: str | None) -> float | None:
    """What `Retry-After` says: "delay-seconds", or the time of a date (RFC 9110, 10.2.3)."""
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def _state_of(job_id: str, status: int, body: bytes) -> JobState | None:
    if status == _NOT_FOUND:
        return None
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        raise ApiRefused(
            f"the provider refuses whoever asks (HTTP {status}): put what the header Authorization must hold into "
            f"{AUTHORIZATION_VARIABLE}"
        )
    if status != _OK:
        raise ApiUnavailable(f"the provider's answer was not expected (HTTP {status})")
    try:
        said = strict_json(body)
    except Undecodable as error:
        raise ApiUnavailable("the provider's answer is not JSON") from error
    name = said.get("status") if isinstance(said, dict) else None
    if not isinstance(name, str):
        raise ApiUnavailable("the provider's answer names no status")
    ended = next((ended for ended in STATUSES if ended == name.lower()), None)
    return JobState(job_id, ended, _moment_of(said))


def _moment_of(said: dict[str, Any]) -> str | None:
    text = said.get("completedAt", said.get("completed_at"))
    try:
        parse_moment(text if isinstance(text, str) else "")
    except ValueError:
        return None
    return str(text)
