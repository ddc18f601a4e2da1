"""Why the provider does not do what it is asked."""

from __future__ import annotations

from inbox.adapters.websocket.codec import ErrorCode

__all__ = ["Conflict", "Refusal", "demand"]


class Refusal(Exception):
    """It refuses.

    Args:
        code: as an error frame says it; the management API has an HTTP status for each.
        message: for whoever reads along. It shows no secret.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code.value}: {message}")


class Conflict(Exception):
    """The management API is asked for what the state does not allow."""


def demand(condition: bool, message: str) -> None:
    """Refuse as PROTOCOL where `condition` does not hold.

    Raises:
        Refusal: with `message`.
    """
    if not condition:
        raise Refusal(ErrorCode.PROTOCOL, message)
