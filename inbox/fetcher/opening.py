"""From the octets of a stored object to a plaintext that is authentic, piece by piece and in one buffer.

An encrypted object is the text of standard base64 over nonce, ciphertext and tag (AES-256-GCM); its length follows from
the size of the plaintext. So nothing of it is kept: each piece is decoded and deciphered into its place, and what
is there is nobody's to read before the tag, the size and the MAC were found right.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final, Protocol

from inbox.fetcher.result_errors import ResultNotAuthentic, ResultNotDecryptable, ResultTooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.ciphers import AEADDecryptionContext

__all__ = ["Encrypted", "Opening", "Plain", "object_length"]

_NONCE: Final = 12
_TAG: Final = 16
#: Octets that `update_into` wants behind what it writes: a block of the cipher less one.
_SLACK: Final = 15


def object_length(size: int, *, encrypted: bool) -> int:
    """Octets of an object whose plaintext has `size`."""
    return 4 * -(-(size + _NONCE + _TAG) // 3) if encrypted else size


class Opening(Protocol):
    """One object that is being opened."""

    def feed(self, piece: bytes | memoryview) -> None:
        """Take the next piece.

        Raises:
            ResultTooLarge: more came than the event says.
            ResultNotDecryptable: it is no base64.
        """
        ...

    def finish(self) -> memoryview:
        """The plaintext, of exactly its size. Authentic only if `Macs` says so as well.

        Raises:
            ResultNotAuthentic: less came than the event says.
            ResultNotDecryptable: the key does not open it.
        """
        ...


class Macs:
    """The MAC of a plaintext under each of some keys, computed while it arrives."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._states = [hmac.new(key, digestmod=hashlib.sha256) for key in keys]

    def update(self, piece: bytes | memoryview) -> None:
        """Take the next piece of the plaintext."""
        for state in self._states:
            state.update(piece)

    def match(self, wanted: str) -> bool:
        """Whether one of them is `wanted`, in lower-case hex; takes the same time whichever that is."""
        octets = wanted.encode("utf-8", "replace")
        good = False
        for state in self._states:
            good |= hmac.compare_digest(state.hexdigest().encode(), octets)
        return good


class Plain:
    """An object that is not encrypted.

    Args:
        size: octets of the plaintext, by the event.
        macs: fed with it.
    """

    def __init__(self, size: int, macs: Macs) -> None:
        self._plaintext = memoryview(bytearray(size))
        self._macs = macs
        self._filled = 0

    def feed(self, piece: bytes | memoryview) -> None:
        """See `Opening.feed`."""
        octets = memoryview(piece).cast("B")
        end = self._filled + len(octets)
        if end > len(self._plaintext):
            raise ResultTooLarge("more octets arrived than the event says")
        self._plaintext[self._filled : end] = octets
        self._filled = end
        self._macs.update(octets)

    def finish(self) -> memoryview:
        """See `Opening.finish`."""
        if self._filled != len(self._plaintext):
            raise ResultNotAuthentic("fewer octets arrived than the event says")
        return self._plaintext.toreadonly()


class Encrypted:
    """An object as the provider stores it.

    Args:
        size: octets of the plaintext, by the event.
        macs: fed with it.
        key: the storage key, 32 octets.
    """

    def __init__(self, size: int, macs: Macs, key: bytes) -> None:
        self._size = size
        self._macs = macs
        self._key = key
        self._buffer = memoryview(bytearray(size + _SLACK))
        self._filled = 0
        self._nonce = b""
        self._tag = b""
        self._left = object_length(size, encrypted=True)
        self._quantum = b""  # fewer than four characters, until the rest of them comes
        self._context: AEADDecryptionContext | None = None

    def feed(self, piece: bytes | memoryview) -> None:
        """See `Opening.feed`."""
        octets = memoryview(piece).cast("B")
        self._left -= len(octets)
        if self._left < 0:
            raise ResultTooLarge("more octets arrived than the event says")
        text = self._quantum + octets
        whole = len(text) - len(text) % 4
        self._quantum = text[whole:]
        try:
            # Strict: no white space, no other alphabet, nothing behind the padding (RFC 4648, 3.3: "Implementations
            # MUST reject the encoded data if it contains characters outside the base alphabet").
            decoded = binascii.a2b_base64(text[:whole], strict_mode=True)
        except binascii.Error as error:
            raise ResultNotDecryptable("the object is no standard base64") from error
        self._decipher(memoryview(decoded))

    def _decipher(self, octets: memoryview) -> None:
        if self._context is None:
            missing = _NONCE - len(self._nonce)
            self._nonce += octets[:missing]
            octets = octets[missing:]
            if len(self._nonce) < _NONCE:
                return
            self._context = _context(self._key, self._nonce)
        part = octets[: self._size - self._filled]
        if part:
            end = self._filled + len(part)
            self._context.update_into(part, self._buffer[self._filled :])
            self._macs.update(self._buffer[self._filled : end])
            self._filled = end
        self._tag += octets[len(part) :]

    def finish(self) -> memoryview:
        """See `Opening.finish`."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as in `_context`

        if self._context is None or self._filled != self._size or len(self._tag) != _TAG:
            raise ResultNotDecryptable("the object has another length than the event says")
        try:
            self._context.finalize_with_tag(self._tag)
        except InvalidTag as error:
            raise ResultNotDecryptable("no storage key opens the object") from error
        return self._buffer[: self._size].toreadonly()


def _context(key: bytes, nonce: bytes) -> AEADDecryptionContext:
    # Imported here: most consumers read no results, and the library takes its time.
    from cryptography.hazmat.primitives.ciphers import Cipher  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.ciphers.algorithms import AES  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.ciphers.modes import GCM  # noqa: PLC0415 - see above

    return Cipher(AES(key), GCM(nonce)).decryptor()
