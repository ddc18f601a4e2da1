"""How long rows are kept, and what a clean-up came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a clean-up has deleted so far, or in all.

    Attributes:
        inbox: rows of processed events. Each is an id that would be applied again if it came again.
        attempts: counts of events in trouble.
        quarantine: refused deliveries that were decided.
        workers: what workers that are gone last said of themselves.
        kept: inbox rows that are old enough and stay, for a replay of what is in quarantine would need them.
        is_skipped: another clean-up of these tables was at work, so nothing was done.
        is_complete: nothing is left to delete; False where it was ended, or left a batch that others held locked.
    """

    inbox: int = 0
    attempts: int = 0
    quarantine: int = 0
    workers: int = 0
    kept: int = 0
    is_skipped: bool = False
    is_complete: bool = True

    @property
    def rows(self) -> int:
        """All that was deleted."""
        return self.inbox + self.attempts + self.quarantine + self.workers


def why_too_short(window: float, horizon: float) -> str | None:
    """Why rows must be kept for longer than `window`; None where they need not.

    Args:
        window: seconds for which rows are to be kept.
        horizon: seconds for which an event may be under way, as `RetryPolicy.horizon` has it.
    """
    if window >= horizon:
        return None
    return (
        f"{window:.0f} s is too short: an event may be under way here for {horizon:.0f} s, and what is forgotten "
        "sooner could be applied twice"
    )
