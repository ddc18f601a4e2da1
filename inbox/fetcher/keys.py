"""Keys: those that consumers are given, and how an operator derives them (job event contract, section 5).

Nothing here shows a key, or a text that was meant to be one: not in a `repr`, not in an error.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, NoReturn, Self

from inbox.config import env, require
from inbox.errors import ConfigurationError

#: The variable that consumers' external keys are read from, and that of the provider's master key.
EXTERNAL_KEY_VARIABLE: Final = "FETCHER_EXTERNAL_HMAC_KEY"
MASTER_KEY_VARIABLE: Final = "APP_ENC_KEY"

#: Octets of every key that is derived.
KEY_OCTETS: Final = 32

_EXTERNAL_INFO: Final = b"fetcher-external-hmac-v1"
_STORAGE_INFO: Final = b"fetcher-storage-encryption-v1"

#: A rotation needs two. Each costs whoever is sent a forgery an HMAC for each candidate.
_MOST_KEYS: Final = 8
_LARGEST_FILE: Final = 1 << 16

_HEX = re.compile(r"[0-9a-fA-F]{64}")
# RFC 4648, 4, with its padding; the URL-safe alphabet is another one.
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


class FetcherKeys:
    """A short list of external HMAC keys: what job events, and the MACs of results, are signed with.

    Nothing on the wire names a key, so each is tried. While keys rotate there are two: events signed with the old one
    may still wait in queues.

    Args:
        keys: of 64 hex digits each, as the provider's key tool prints it, or of 32 octets; one text may hold several,
            with commas. The one in use first: it is tried first.

    Raises:
        ConfigurationError: there is none, there are more than eight, or one is malformed. The message holds nothing
            of it.
    """

    __slots__ = ("_keys",)

    KIND: ClassVar[str] = "external key"
    ORIGIN: ClassVar[str] = "that the provider's key tool prints"

    def __init__(self, keys: str | Iterable[str | bytes]) -> None:
        each = keys.split(",") if isinstance(keys, str) else [*keys]
        octets = tuple(dict.fromkeys(_octets_of(key, f"{self.KIND} {number}") for number, key in enumerate(each, 1)))
        require(len(octets) > 0, f"no {self.KIND}: give the 64 hex digits {self.ORIGIN}")
        require(len(octets) <= _MOST_KEYS, f"{len(octets)} {self.KIND}s, at most {_MOST_KEYS}: leave the oldest out")
        self._keys = octets

    @classmethod
    def from_env(cls, name: str = EXTERNAL_KEY_VARIABLE) -> Self:
        """The keys in an environment variable, with commas.

        Args:
            name: of the variable.

        Raises:
            ConfigurationError: it is not set, or what it holds is malformed. The message holds nothing of it.
        """
        text = env(name)
        try:
            return cls(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: {error}") from None

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The keys in a file, one a line; empty lines and lines that begin with # are left out.

        Args:
            path: of the file, such as a secret that is mounted.

        Raises:
            ConfigurationError: it cannot be read, or holds something else. The message holds nothing of it.
        """
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(_LARGEST_FILE)
            lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
            return cls(",".join(lines) if lines else ())
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror or type(error).__name__}") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path}: not text in UTF-8") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @property
    def octets(self) -> tuple[bytes, ...]:
        """The keys themselves, each of 32 octets, for whoever computes with them."""
        return self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._keys)}>"

    def __reduce__(self) -> NoReturn:
        """Keys leave a process by nobody's accident.

        Raises:
            TypeError: always.
        """
        raise TypeError("keys are not pickled: let the other process read them where this one did")


def _octets_of(key: object, which: str) -> bytes:
    """One key. A message tells `which`, its place in the list, and what is wrong with it in words of its kind."""
    if isinstance(key, bytes):
        require(len(key) == KEY_OCTETS, f"{which} must have {KEY_OCTETS} octets")
        return key
    text = key.strip() if isinstance(key, str) else ""
    if _HEX.fullmatch(text) is None:
        # As long as the usual master key, and its padding shows: the most likely mistake, and the gravest.
        is_master = len(text) % 4 == 0 and text.endswith("=") and _BASE64.fullmatch(text) is not None
        hint = f"; this is base64, as {MASTER_KEY_VARIABLE} is: derive from it (inbox fetcher derive-key)"
        raise ConfigurationError(f"{which} must be 64 hex digits{hint if is_master else ''}")
    return bytes.fromhex(text)


@dataclass(frozen=True, slots=True, repr=False)
class DerivedKeys:
    """The keys that a consumer may be given. Its credentials key and its internal key are none, and are not derived.

    Attributes:
        external: verifies job events and the MACs of results; whoever has it can forge both. 32 octets.
        storage: opens stored results (AES-256-GCM). 32 octets.
        warning: what is probably wrong with the master key although it is one; None where nothing is.
    """

    external: bytes
    storage: bytes
    warning: str | None = None

    def __repr__(self) -> str:
        return "<DerivedKeys>"


def derive_keys(master: str) -> DerivedKeys:
    """What follows from the provider's master key, by HKDF-SHA256 without a salt (RFC 5869).

    For operators, once. A consumer has no use for the master key, which opens data source passwords as well.

    Args:
        master: the text of `APP_ENC_KEY`, exactly as the provider has it: standard base64 with padding, of at least
            32 octets. CR and LF are skipped, and nothing else is: what the provider refuses would give keys here that
            it does not have.

    Raises:
        ConfigurationError: it is none. The message says what is wrong, and nothing of the text.
    """
    octets = _master_octets(master)
    warning = None
    if _HEX.fullmatch(master.strip("\r\n")):
        warning = (
            f"the master key looks like 64 hex digits, and is read as base64 of {len(octets)} octets, as the provider "
            "reads it. The keys are right if the provider is given this very text; 32 octets that were meant to be "
            "written in hex are another key"
        )
    return DerivedKeys(_hkdf(octets, _EXTERNAL_INFO), _hkdf(octets, _STORAGE_INFO), warning)


def _master_octets(master: str) -> bytes:
    text = master.replace("\r", "").replace("\n", "")
    require(text != "", "the master key is empty")
    if _BASE64.fullmatch(text) is None:
        raise ConfigurationError(f"the master key is not standard base64: {_what_is_wrong(text)}")
    octets = base64.b64decode(text)
    require(len(octets) >= KEY_OCTETS, f"the master key has {len(octets)} octets, at least {KEY_OCTETS} are needed")
    return octets


def _what_is_wrong(text: str) -> str:
    if text != text.strip():
        return "white space stands before or behind it, which the provider refuses"
    if "-" in text or "_" in text:
        return "it has the URL-safe alphabet; + and / are needed for - and _"
    if _BASE64.fullmatch(text + "=" * (-len(text) % 4)) is not None:
        return "its padding is missing"
    return "it holds other characters, or its padding is wrong"


def _hkdf(master: bytes, info: bytes) -> bytes:
    # Imported here: only operators' commands derive keys, and the library takes its time.
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - see above

    return HKDF(algorithm=SHA256(), length=KEY_OCTETS, salt=None, info=info).derive(master)
