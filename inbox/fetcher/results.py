"""Stored results: read before the transaction, and checked whole before a row of them is anybody's.

    objects = S3Objects("fetcher-storage")
    reader = ResultReader(objects, keys=FetcherKeys.from_env(), storage_keys=StorageKeys.from_env())

    @inbox.handler(*JobCompleted.TYPES, prepare=reader.prepare)
    async def bill(job: JobCompleted, session: AsyncSession, result: Result) -> None:
        for row in result.rows():
            ...

`prepare` runs while no transaction is open, so a slow store holds no lock and no connection. What is checked is in the
job event contract, sections 7 and 8.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final, Self

from inbox.config import require
from inbox.fetcher.keys import FetcherKeys
from inbox.fetcher.models import JobCompleted, JobResult
from inbox.fetcher.objects import Objects, check_prefix, key_of
from inbox.fetcher.opening import Encrypted, Macs, Opening, Plain
from inbox.fetcher.result_errors import (
    ResultKeyMissing,
    ResultMalformed,
    ResultNotAuthentic,
    ResultNotDecryptable,
    ResultTooLarge,
)
from inbox.fetcher.rows import Row, scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["LARGEST_RESULT", "STORAGE_KEY_VARIABLE", "Result", "ResultReader", "StorageKeys"]

#: The variable that storage keys are read from.
STORAGE_KEY_VARIABLE: Final = "FETCHER_STORAGE_KEY"
#: Octets. The provider's own limit, unless its operator has set another one.
LARGEST_RESULT: Final = 256 << 20

#: Rows that are counted in one go, beside the event loop.
_PORTION: Final = 2_000
#: Octets up to which counting takes less than handing it to a thread.
_SMALL: Final = 1 << 15


class StorageKeys(FetcherKeys):
    """A short list of storage keys: what stored results are encrypted with.

    The provider's tool prints none; its operator derives one from the master key, once (`inbox fetcher derive-key`).
    Each further key costs another read of the object where the ones before do not open it.

    Args:
        keys: of 64 hex digits each, or of 32 octets; one text may hold several, with commas. The one in use first.

    Raises:
        ConfigurationError: there is none, there are more than eight, or one is malformed. The message holds nothing
            of it.
    """

    __slots__ = ()

    KIND = "storage key"
    ORIGIN = "that inbox fetcher derive-key prints"

    @classmethod
    def from_env(cls, name: str = STORAGE_KEY_VARIABLE) -> Self:
        """The keys in an environment variable, with commas.

        Args:
            name: of the variable.

        Raises:
            ConfigurationError: it is not set, or what it holds is malformed. The message holds nothing of it.
        """
        return super().from_env(name)


class Result:
    """The result of one job: authentic, whole, and in memory as long as this is.

    Made by `ResultReader`. Its rows are the tenant's own data: keep them out of logs.

    Attributes:
        plaintext: its exact octets, read only.
        tables: how many rows each table has, by names of data source and table. A table without rows is among them.
    """

    __slots__ = ("plaintext", "tables")

    def __init__(self, plaintext: memoryview, tables: Mapping[tuple[str, str], int]) -> None:
        self.plaintext = plaintext
        self.tables = tables

    def __repr__(self) -> str:
        return f"<Result of {len(self.plaintext)} octets>"

    @property
    def row_count(self) -> int:
        """Rows over all tables."""
        return sum(self.tables.values())

    def rows(self, source: str | None = None, table: str | None = None) -> Iterator[Row]:
        """The rows in their order, decoded one after the other; may be asked for again.

        Args:
            source: only those of this data source; None takes every one.
            table: only those of tables of this name; None takes every one.

        Raises:
            LookupError: there is no such table. One without rows is there, and gives none.
        """
        found = any(source in (None, a_source) and table in (None, a_table) for a_source, a_table in self.tables)
        if not found and (source, table) != (None, None):
            raise LookupError("the result has no such table: look at `tables` for their names")
        return self._rows(source, table)

    def _rows(self, source: str | None, table: str | None) -> Iterator[Row]:
        for a_source, a_table, values in scan(self.plaintext):
            if values is not None and source in (None, a_source) and table in (None, a_table):
                yield Row(a_source, a_table, values)


class ResultReader:
    """Fetches, opens and checks the results that events of completed jobs name.

    One may serve several handlers. For each event that is prepared there is one buffer, of the size that its event
    states: at most `concurrency` of the consumer times `max_bytes` altogether.

    Args:
        objects: where they are stored.
        keys: external keys, one of which has to have authenticated the result; see `FetcherKeys`.
        storage_keys: open what is encrypted; None reads only what is not. See `StorageKeys`.
        prefix: what the provider's deployment puts before every path, `OBJECT_STORAGE_KEY_PREFIX`; no event tells it.
        max_bytes: octets of the largest result that is taken.

    Raises:
        ConfigurationError: a key is malformed, the prefix begins no key, or `max_bytes` is less than 1.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        keys: FetcherKeys | str | Iterable[str | bytes],
        storage_keys: StorageKeys | str | Iterable[str | bytes] | None = None,
        prefix: str = "",
        max_bytes: int = LARGEST_RESULT,
    ) -> None:
        require(max_bytes >= 1, "max_bytes must be at least 1")
        self._objects = objects
        self._keys = (keys if isinstance(keys, FetcherKeys) else FetcherKeys(keys)).octets
        self._storage_keys = _storage_octets(storage_keys)
        self._prefix = check_prefix(prefix)
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<ResultReader of {self._objects!r}>"

    async def prepare(self, job: JobCompleted) -> Result:
        """What to give as `prepare` to a handler of `JobCompleted`; its result is the handler's last argument.

        Raises:
            ResultNotFound, ResultUnreachable: asked for again later; each time is an attempt.
            Refused: it can never be had, or not before a person has mended something; see `read`.
        """
        return await self.read(job.result)

    async def read(self, stored: JobResult) -> Result:
        """The result that an authentic event names.

        Nothing is fetched where the event alone is enough to refuse; no row is looked at before size and MAC are right.

        Args:
            stored: of an event that a `FetcherVerifier` has accepted.

        Raises:
            ResultNotFound: there is no such object, or not yet.
            ResultUnreachable: the store did not answer, or not to the end.
            ResultPathRefused: its path is none.
            ResultTooLarge: it is larger than `max_bytes`, or than it says.
            ResultKeyMissing: it is encrypted, and there is no storage key.
            ResultNotDecryptable: no storage key opens it.
            ResultNotAuthentic: its size or its MAC is another one, or the event has no MAC.
            ResultMalformed: it is authentic, and no JSON of the agreed shape, or has another number of rows.
        """
        wanted = _mac_of(stored)
        key = key_of(self._prefix, stored.path)
        if stored.size_bytes > self._max_bytes:
            raise ResultTooLarge(f"the event says that it is larger than the limit of {self._max_bytes:,} octets")
        macs, plaintext = await self._open(key, stored)
        if not macs.match(wanted):
            raise ResultNotAuthentic("its MAC is not what the event says")
        tables = await _count(plaintext)
        if sum(tables.values()) != stored.row_count:
            raise ResultMalformed("it has another number of rows than the event says")
        return Result(plaintext, tables)

    async def _open(self, key: str, stored: JobResult) -> tuple[Macs, memoryview]:
        size, protection = stored.size_bytes, stored.protection
        # Events of 1.x do not say; whoever gives a storage key has encrypted results.
        if not (bool(self._storage_keys) if protection is None else protection.encrypted):
            return await self._fetch(key, size, None)
        if not self._storage_keys:
            raise ResultKeyMissing("it is encrypted, and the reader has no storage key")
        *others, last = self._storage_keys
        for storage_key in others:
            with suppress(ResultNotDecryptable):  # which key it is, nothing tells
                return await self._fetch(key, size, storage_key)
        return await self._fetch(key, size, last)

    async def _fetch(self, key: str, size: int, storage_key: bytes | None) -> tuple[Macs, memoryview]:
        macs = Macs(self._keys)
        opening: Opening = Plain(size, macs) if storage_key is None else Encrypted(size, macs, storage_key)
        async with aclosing(self._objects.read(key)) as pieces:
            async for piece in pieces:
                opening.feed(piece)
        return macs, opening.finish()


def _storage_octets(keys: StorageKeys | str | Iterable[str | bytes] | None) -> tuple[bytes, ...]:
    if keys is None:
        return ()
    return (keys if isinstance(keys, StorageKeys) else StorageKeys(keys)).octets


def _mac_of(stored: JobResult) -> str:
    """The MAC that the event vouches for, of the two places where it may stand.

    Raises:
        ResultNotAuthentic: there is none, or two that contradict each other.
    """
    integrity = stored.integrity
    signature = integrity.signature if integrity is not None and integrity.algorithm == "HMAC-SHA256" else None
    if stored.hmac is not None and signature is not None and stored.hmac != signature:
        raise ResultNotAuthentic("the event has two MACs that contradict each other")
    wanted = stored.hmac or signature
    if not wanted:
        raise ResultNotAuthentic("the event has no MAC of the result")
    return wanted


async def _count(plaintext: memoryview) -> dict[tuple[str, str], int]:
    """How many rows each table has; reads the JSON to its end."""
    counts: dict[tuple[str, str], int] = {}
    entries = scan(plaintext)
    if len(plaintext) <= _SMALL:
        while _count_some(entries, counts):
            pass
    else:
        # In portions: a thread cannot be cancelled, and whoever is must not leave one behind for long.
        while await asyncio.to_thread(_count_some, entries, counts):
            pass
    return counts


def _count_some(entries: Iterator[tuple[str, str, object]], counts: dict[tuple[str, str], int]) -> bool:
    for _ in range(_PORTION):
        entry = next(entries, None)
        if entry is None:
            return False
        source, table, values = entry
        counts[source, table] = counts.get((source, table), 0) + (values is not None)
    return True
