"""How long rows are kept: the shortest window, and what a clean-up came to."""

from typing import Any

import pytest

from inbox.config import ConsumerSettings
from inbox.core.policy import RetryPolicy
from inbox.core.retention import Pruned, why_too_short
from inbox.errors import ConfigurationError

DAY = 86_400.0


def test_all_that_was_deleted_is_counted_and_what_was_kept_is_not() -> None:
    assert Pruned(inbox=1, attempts=20, quarantine=300, workers=4000, kept=50_000).rows == 4321


def test_a_window_may_be_as_short_as_an_event_may_be_under_way() -> None:
    assert why_too_short(100.0, 100.0) is None
    problem = why_too_short(99.0, 100.0)
    assert problem is not None
    assert problem.startswith("99 s is too short")
    assert "100 s" in problem


def test_a_consumer_keeps_its_rows_unless_it_is_told() -> None:
    settings = ConsumerSettings()
    assert (settings.retention, settings.retention_interval) == (None, 3600.0)
    assert ConsumerSettings(retention=30 * DAY).retention == 30 * DAY


def test_a_consumer_that_would_forget_too_soon_is_told_the_number_and_what_to_do() -> None:
    horizon = RetryPolicy().horizon(30.0)
    assert ConsumerSettings(retention=horizon).retention == horizon
    with pytest.raises(ConfigurationError, match=rf"{horizon:.0f} s.*raise it, or lower retry\.delays"):
        ConsumerSettings(retention=horizon - 1)
    with pytest.raises(ConfigurationError, match="too short"):
        ConsumerSettings(retention=DAY, retry=RetryPolicy(delays=(DAY,)))
    with pytest.raises(ConfigurationError, match="too short"):
        ConsumerSettings(retention=horizon, deadline=600.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"retention": 0},
        {"retention": -1.0},
        {"retention": float("inf")},
        {"retention": "30d"},
        {"retention_interval": 0},
        {"retention_interval": None},
    ],
)
def test_a_window_and_an_interval_are_seconds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} must be more than 0 seconds"):
        ConsumerSettings(**wrong)
