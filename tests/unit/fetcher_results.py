"""Stored results for tests: those that the provider's own code wrote, and others that are sealed here."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from inbox.fetcher.keys import FetcherKeys
from inbox.fetcher.models import JobCompleted, JobResult, ResultProtection
from inbox.fetcher.result_errors import ResultNotFound
from inbox.fetcher.results import ResultReader, StorageKeys

_FILE = json.loads(Path(__file__).with_name("fetcher_results.json").read_text(encoding="utf-8"))
RESULTS: list[dict[str, Any]] = _FILE["results"]
KEYS: dict[str, dict[str, str]] = _FILE["keys"]

EXTERNAL = bytes(range(32))
STORAGE = bytes(range(32, 64))
ENCRYPTED = ResultProtection(encrypted=True, mode="adapter-managed", applied_by="adapter")
PATH = "external-data/0198a1f2-6b0d-7c34-8e55-1a2b3c4d5e6f.json"


def mac(plaintext: bytes, key: bytes = EXTERNAL) -> str:
    return hmac.new(key, plaintext, hashlib.sha256).hexdigest()


def sealed(plaintext: bytes, key: bytes = STORAGE) -> bytes:
    """The object that the provider stores for a result."""
    nonce = hashlib.sha256(plaintext).digest()[:12]
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, plaintext, None))


def stored(plaintext: bytes, rows: int = 0, **changes: Any) -> JobResult:
    """What an event says of it."""
    said = {"path": PATH, "size_bytes": len(plaintext), "row_count": rows, "hmac": mac(plaintext)}
    return JobResult(**{**said, "protection": ENCRYPTED, **changes})


def job(result: JobResult) -> JobCompleted:
    return JobCompleted(
        job_id=UUID("0198a1f2-6b0d-7c34-8e55-1a2b3c4d5e6f"),
        result=result,
        completed_at=datetime(2026, 7, 2, tzinfo=UTC),
    )


@dataclass
class MemoryObjects:
    """Objects in memory, handed out in pieces of any size."""

    content: dict[str, bytes] = field(default_factory=dict)
    piece: int = 1 << 16
    asked: list[str] = field(default_factory=list)
    handed_out: int = 0
    open: int = 0

    async def read(self, key: str) -> AsyncGenerator[bytes | memoryview, None]:
        self.asked.append(key)
        if key not in self.content:
            raise ResultNotFound
        self.open += 1
        try:
            for begin in range(0, len(self.content[key]), self.piece):
                self.handed_out += self.piece
                yield self.content[key][begin : begin + self.piece]
        finally:
            self.open -= 1


def reader_of(
    content: bytes | None, *, keys: Any = (EXTERNAL,), storage: Any = (STORAGE,), piece: int = 1 << 16, **options: Any
) -> tuple[ResultReader, MemoryObjects]:
    """A reader that finds `content` at the path of `stored`."""
    objects = MemoryObjects({} if content is None else {options.get("prefix", "") + PATH: content}, piece)
    storage_keys = None if storage is None else StorageKeys(storage)
    return ResultReader(objects, keys=FetcherKeys(keys), storage_keys=storage_keys, **options), objects
