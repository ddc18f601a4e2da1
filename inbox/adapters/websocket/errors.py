"""What can happen to a leased subscription, split by whether trying again can help.

```
TransportError
└── OrbitError                nothing is known to be wrong with the events
    ├── OrbitProtocolError      stop: the peer, or we, broke the protocol
    │   └── FrameTooLong          more than 512 KiB in one text frame
    ...
```
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from inbox.errors import TransportError


class StopKind(Enum):
    """Why a subscription cannot go on."""

    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    NOT_FOUND = "not-found"
    HISTORY_GAP = "history-gap"
    PROTOCOL = "protocol"
    OTHER = "other"


class OrbitError(TransportError):
    """Root of what this adapter raises. No message carries a text of the peer's, an id or a secret.

    Attributes:
        kind: why trying again cannot help; None where it may.
    """

    kind: ClassVar[StopKind | None] = None


class OrbitProtocolError(OrbitError):
    """A frame that the protocol does not allow, here or now. The connection is closed, and nothing was confirmed.

    Args:
        reason: what is wrong, in words of ours.
    """

    kind = StopKind.PROTOCOL

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the subscription protocol was broken: {reason}")


class FrameTooLong(OrbitProtocolError):
    """A text frame of more than 512 KiB."""

    def __init__(self) -> None:
        super().__init__("a frame is longer than 512 KiB")
