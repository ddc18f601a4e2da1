"""Where stored results are read from: a narrow port, and what stands behind it.

`S3Objects` reads from any store that speaks S3, by `obstore` (the extra `s3`): without a thread, in pieces, and no
other package comes with it. `DirectoryObjects` reads from a folder, for tests and for stores that are mounted.
"""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from inbox.config import require
from inbox.errors import ConfigurationError
from inbox.fetcher.result_errors import ResultNotFound, ResultPathRefused, ResultUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

__all__ = ["DirectoryObjects", "Objects", "S3Objects", "check_prefix", "key_of"]

#: Octets that a piece has at most, give or take what a network read brings.
PIECE: Final = 1 << 18
#: "The name for a key is a sequence of Unicode characters whose UTF-8 encoding is at most 1,024 bytes long" (Amazon S3,
#: object key naming guidelines).
_LONGEST_KEY: Final = 1024
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\\]")


class Objects(Protocol):
    """A store of objects, to be read from."""

    def read(self, key: str) -> AsyncGenerator[bytes | memoryview, None]:
        """The content of one object, in order, in pieces of some hundred kilobytes.

        Whoever reads may stop before the end, and closes the generator in every case.

        Args:
            key: from `key_of`: it names nothing outside of the store.

        Raises:
            ResultNotFound: there is no such object.
            ResultUnreachable: it cannot be read to its end at present.
        """
        ...


def check_prefix(prefix: str) -> str:
    """What stands before each path, if it can be the beginning of a key: empty, or text without a leading slash.

    Raises:
        ConfigurationError: it cannot.
    """
    require(isinstance(prefix, str), f"prefix must be a text, not a {type(prefix).__name__}")
    require(
        _is_key(f"{prefix}x"), "prefix must be the beginning of a key: no slash first, and no part . or .. or empty"
    )
    return prefix


def key_of(prefix: str, path: str) -> str:
    """The key of an object: the operator's prefix, and the path that an event names, with nothing between them.

    Args:
        prefix: as `check_prefix` lets it through.
        path: of an authentic event. It is checked all the same: who signs events need not be who may read files.

    Raises:
        ResultPathRefused: it would lead somewhere else, or is no key.
    """
    key = f"{prefix}{path}"
    if not path or not _is_key(key):
        raise ResultPathRefused("the path of the result is no key of an object")
    return key


def _is_key(key: str) -> bool:
    try:
        octets = len(key.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    parts = key.split("/")
    return (
        octets <= _LONGEST_KEY and not _UNPRINTABLE.search(key) and all(part not in ("", ".", "..") for part in parts)
    )


class DirectoryObjects:
    """The files of a folder, by their paths in it.

    Args:
        folder: what leads out of it, be it by a symbolic link, is not there.

    Raises:
        ConfigurationError: there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        require(folder.is_dir(), f"{folder} is no folder: make it first, or name another one")
        self._folder = folder.resolve()

    def __repr__(self) -> str:
        return f"DirectoryObjects({str(self._folder)!r})"

    async def read(self, key: str) -> AsyncGenerator[bytes | memoryview, None]:
        """See `Objects.read`."""
        file = await asyncio.to_thread(self._open, key)
        try:
            while piece := await asyncio.to_thread(_next_piece, file):
                yield piece
        finally:
            file.close()

    def _open(self, key: str) -> BinaryIO:
        try:
            path = (self._folder / key).resolve()
            # Anything but a file could keep whoever opens it waiting for ever.
            if not path.is_relative_to(self._folder) or not path.is_file():
                raise ResultNotFound
            return path.open("rb")
        except FileNotFoundError:
            raise ResultNotFound from None
        except (OSError, RuntimeError) as error:  # the latter for links in a circle, up to Python 3.12
            raise ResultUnreachable from error


def _next_piece(file: BinaryIO) -> bytes:
    try:
        return file.read(PIECE)
    except OSError as error:
        raise ResultUnreachable from error


class S3Objects:
    """One bucket of a store that speaks S3: Amazon's, MinIO, SeaweedFS and others. Needs the extra `s3`.

    What is not given is taken from the environment, as Amazon's own tools take it: `AWS_ACCESS_KEY_ID`,
    `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, or the role of the machine.

    Args:
        bucket: its name.
        endpoint: address of a store that is not Amazon's, such as `https://minio.internal:9000`; `http://` is taken,
            for what is stored is encrypted and authenticated by itself.
        region: of the bucket.
        access_key_id, secret_access_key: who reads; both or neither.
        virtual_hosted: the bucket's name is part of the host's, and not of the path.
        timeout: seconds for one object, from the question to its last octet. Keep it below the consumer's `deadline`.
        retries: further tries of a request that failed, within `timeout`.

    Raises:
        ConfigurationError: obstore is not installed, or a setting is malformed. The message holds no secret.
    """

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        virtual_hosted: bool = False,
        timeout: float = 20.0,
        retries: int = 2,
    ) -> None:
        require(bool(bucket), "S3Objects needs the name of a bucket")
        require(
            (access_key_id is None) == (secret_access_key is None), "access_key_id and secret_access_key go together"
        )
        require(timeout > 0 and retries >= 0, "timeout must be more than 0 seconds, and retries 0 or more")
        require(
            endpoint is None or endpoint.startswith(("http://", "https://")),
            "endpoint must begin with https:// or http://",
        )
        try:
            from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra, asked for where it is used
            from obstore.store import S3Store  # noqa: PLC0415 - as above
        except ModuleNotFoundError:
            raise ConfigurationError("S3Objects needs obstore: pip install 'idempotent-inbox[s3]'") from None
        given: dict[str, Any] = {
            "endpoint": endpoint,
            "region": region,
            "access_key_id": access_key_id,
            "secret_access_key": secret_access_key,
        }
        self._bucket = bucket
        self._failure = BaseError
        try:
            self._store = S3Store(
                bucket,
                virtual_hosted_style_request=virtual_hosted,
                client_options={
                    "timeout": timedelta(seconds=timeout),
                    "allow_http": bool(endpoint and endpoint[4] == ":"),
                },
                retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=timeout)},
                **{name: value for name, value in given.items() if value is not None},
            )
        except (BaseError, ValueError) as error:
            raise ConfigurationError(
                f"the settings of bucket {bucket!r} are refused ({type(error).__name__}): look at endpoint and region, "
                "and at what AWS_… in the environment says"
            ) from None

    def __repr__(self) -> str:
        return f"S3Objects({self._bucket!r})"

    async def read(self, key: str) -> AsyncGenerator[bytes | memoryview, None]:
        """See `Objects.read`."""
        try:
            found = await self._store.get_async(key)
            async for piece in found.stream(min_chunk_size=PIECE):
                yield memoryview(piece)
        except FileNotFoundError:
            raise ResultNotFound from None
        except (self._failure, OSError, ValueError) as error:
            raise ResultUnreachable from error
