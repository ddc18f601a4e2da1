"""Proofs encrypted for storage, with keys that can be rotated.

A proof in a table or a file acknowledges an event for whoever reads it. Sealed it is of no use without a key:

    seal = ProofSeal([SealingKey(env("PROOF_KEY_2")), SealingKey(env("PROOF_KEY_1"))])
    row.proof = seal.close(proof)
    ...
    await connection.ack(new_message_id(), seal.open(row.proof))

To rotate, put a new key in front; what was sealed with an older one is still opened, and `is_current` tells what is to
be sealed anew before that one is taken away.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from typing import Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from inbox.config import require
from inbox.core.proof import Proof, Secret
from inbox.errors import InboxError

#: The form of what is stored: this octet, the key's id, the nonce, the encrypted proof with its tag.
_FORM: Final = b"\x01"
_KEY_OCTETS: Final = 32
_ID_OCTETS: Final = 8
_NONCE_OCTETS: Final = (
    12  # NIST SP 800-38D, 5.2.1.1: "it is recommended that implementations restrict support to 96 bits"
)


class SealBroken(InboxError):
    """What was stored is no proof that these keys have sealed."""


class SealingKey(Secret):
    """A key for `ProofSeal`: base64url of 32 octets.

    Args:
        text: the key, as `generate` made it; with or without padding.

    Raises:
        ConfigurationError: it is none.
    """

    __slots__ = ("id",)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        del text
        octets = _octets_of(self)
        require(octets is not None, "a sealing key is base64url of 32 octets; SealingKey.generate() makes one")
        #: Names the key and tells nothing of it.
        self.id = hashlib.sha256(b"inbox sealing key id\0" + (octets or b"")).digest()[:_ID_OCTETS].hex()

    @classmethod
    def generate(cls) -> SealingKey:
        """A new key; `reveal` it once, to store it where secrets are kept."""
        return cls(base64.urlsafe_b64encode(os.urandom(_KEY_OCTETS)).decode())

    def __repr__(self) -> str:
        return f"<SealingKey {self.id}>"


class ProofSeal:
    """Seals proofs with the first of its keys, and opens what any of them has sealed.

    Args:
        keys: the one that seals first; then those that were used before.

    Raises:
        ConfigurationError: there is none, or one twice.
    """

    def __init__(self, keys: Sequence[SealingKey]) -> None:
        require(bool(keys), "a seal needs a key")
        require(len({key.id for key in keys}) == len(keys), "a sealing key is there twice")
        self._first = keys[0].id
        self._ciphers = {key.id: AESGCM(_octets_of(key) or b"") for key in keys}

    def __repr__(self) -> str:
        return f"<ProofSeal with key {self._first}>"

    def close(self, proof: Proof) -> bytes:
        """The proof, encrypted; each time other octets, from which its key's id can be read and nothing else."""
        head = _FORM + bytes.fromhex(self._first)
        nonce = os.urandom(_NONCE_OCTETS)
        return head + nonce + self._ciphers[self._first].encrypt(nonce, proof.to_json().encode(), head)

    def open(self, sealed: bytes) -> Proof:
        """The proof that `close` was given.

        Raises:
            SealBroken: none of the keys has sealed it, or it was changed.
        """
        cipher = self._ciphers.get(key_id_of(sealed))
        if cipher is None:
            raise SealBroken("the key that sealed this proof is not among those that were given")
        start = len(_FORM) + _ID_OCTETS
        proof = _opened(cipher, sealed[:start], sealed[start : start + _NONCE_OCTETS], sealed[start + _NONCE_OCTETS :])
        return proof if proof is not None else _refuse()

    def is_current(self, sealed: bytes) -> bool:
        """Whether the first key has sealed it, so that the others are not needed for it.

        Raises:
            SealBroken: it is not of a form that `close` makes.
        """
        return key_id_of(sealed) == self._first


def key_id_of(sealed: bytes) -> str:
    """The id of the key that sealed it.

    Raises:
        SealBroken: it is not of a form that `ProofSeal.close` makes.
    """
    if len(sealed) <= len(_FORM) + _ID_OCTETS + _NONCE_OCTETS or sealed[:1] != _FORM:
        raise SealBroken("this is no sealed proof")
    return sealed[1 : 1 + _ID_OCTETS].hex()


def _opened(cipher: AESGCM, head: bytes, nonce: bytes, body: bytes) -> Proof | None:
    """None is raised elsewhere: here the proof's text would be among the variables of the traceback."""
    try:
        return Proof.from_json(cipher.decrypt(nonce, body, head).decode())
    except (InvalidTag, ValueError):
        return None


def _refuse() -> NoReturn:
    raise SealBroken("this sealed proof was changed, or another key has its key's id")


def _octets_of(key: Secret) -> bytes | None:
    text = key.reveal().rstrip("=")
    try:
        octets = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return octets if len(octets) == _KEY_OCTETS else None
