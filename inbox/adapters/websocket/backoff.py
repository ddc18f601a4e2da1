"""How long to wait before connecting again."""

from __future__ import annotations


class Backoff:
    """Doubles from a least to a most number of seconds; each wait is drawn from the upper half.

    Half of it stays, so that a peer that struggles is left alone for a while; the other half is drawn, so that the
    consumers of a restarted platform do not all come back in the same instant.

    Args:
        least: seconds, the first time.
        most: seconds that no wait exceeds.
    """

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._turn = 0

    def next(self, jitter: float) -> float:
        """Seconds to wait now, in [d/2, d].

        Args:
            jitter: a number in [0, 1] drawn by the caller.
        """
        ceiling = min(self._most, self._least * 2.0 ** min(self._turn, 62))
        self._turn += 1
        return ceiling * (0.5 + jitter / 2)

    def reset(self) -> None:
        """Begin again with the least: something was acknowledged."""
        self._turn = 0
