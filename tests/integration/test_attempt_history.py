"""A start that was taken for a dead process's: its charge goes, whatever the other process has done since."""

import pytest

from inbox.core.records import Attempts
from inbox.testing.conformance.store_rig import opened
from tests.crash.app import connect
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    rig = MySQLRig(pair, driver)
    await rig.create()
    return rig


def history(pair: Pair) -> list[str]:
    """The kinds of its lines."""
    with connect(pair.database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT CAST(history AS CHAR) FROM inbox_attempt")
        ((text,),) = cursor.fetchall()
    return [line.split(" ", 2)[2].split(":")[0] for line in (text or "").splitlines()]


@pytest.mark.parametrize(("failed", "released"), [(False, False), (True, False), (False, True)])
async def test_a_charge_of_one_that_lives_is_taken_back_though_the_other_run_has_ended(
    rig: MySQLRig, pair: Pair, failed: bool, released: bool
) -> None:
    one, other = rig.store(), rig.store()
    async with opened(one, other):
        await one.end_attempt(b"e", released=True)
        await one.start_attempt(b"e", alone=True)
        assert (await other.start_attempt(b"e", alone=True)).crashed == 1
        assert await other.end_attempt(b"e", released=True) == Attempts(crashed=1, released=2)
        counts = await one.end_attempt(b"e", failed=failed, released=released)
        assert counts == Attempts(failed=int(failed), released=2 + released)
        assert await other.start_attempt(b"e", alone=True) == counts, "no start is open"
    assert history(pair)[:3] == ["released", "no crash", "released"]


async def test_two_charges_of_one_that_lives_are_both_taken_back_and_no_one_elses(rig: MySQLRig, pair: Pair) -> None:
    dead, one, other = rig.store(), rig.store(), rig.store()
    async with opened(dead, one, other):
        await dead.start_attempt(b"e", alone=True)
        for crashed in (2, 3):
            await one.start_attempt(b"e", alone=True)
            assert (await other.start_attempt(b"e")).crashed == crashed
            await other.end_attempt(b"e")
        assert await one.end_attempt(b"e", failed=True) == Attempts(failed=1, crashed=1)
        assert await one.end_attempt(b"e", failed=True) == Attempts(failed=2, crashed=1)
    assert history(pair) == ["crashed", "no crash", "no crash", "failed", "failed"]
