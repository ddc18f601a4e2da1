"""Tests of the shop that kill its workers: `pytest unsafe`, from the folder that holds `unsafe`."""

from collections.abc import Callable

import pytest

from inbox.testing.lab import Lab

ORDER = {"id": "order-1", "type": "order.paid", "data": {"customer": "ada", "cents": 1250}}


def test_killed_before_commit(
    kill_at: Callable[..., None],
    publish: Callable[..., None],
    settled: Callable[..., None],
    assert_effect_once: Callable[..., None],
) -> None:
    kill_at("before:commit")
    publish(ORDER)
    settled()
    assert_effect_once("SELECT * FROM invoice WHERE customer = 'ada'")


@pytest.mark.crash_matrix(points=["after:apply", "after:commit"])
def test_killed_anywhere(inbox_lab: Lab) -> None:
    inbox_lab.publish(ORDER, copies=2)
    inbox_lab.settled()
    inbox_lab.assert_same_as_quiet_run()
