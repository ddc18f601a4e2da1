"""`make demo`, small: what it shows is what it has counted."""

import asyncio
import re
import sys

from tests.acceptance.command import ROOT, clean_environment
from tests.pairs import Pair


async def test_the_demo_bills_every_job_once_though_its_worker_is_killed(pair: Pair) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.billing.demo", "--jobs", "60", "--duplicates", "30", "--kills", "1"),
        cwd=ROOT,
        env=clean_environment() | {"BILLING_DATABASE_URL": pair.database.dsn, "BILLING_AMQP_URL": pair.amqp_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        shown, errors = (text.decode() for text in await program.communicate())
    assert program.returncode == 0, shown + errors
    assert "SIGKILL number 1" in shown
    assert "every job was billed exactly once" in shown
    counts = dict(re.findall(r"│ ([a-z ]+?) +│ (\d+) +│", shown))
    assert (counts["deliveries published"], counts["distinct jobs"]) == ("91", "61")
    assert counts["ledger entries"] == counts["inbox rows"] == "61"
    assert counts["jobs with more than one entry"] == counts["jobs without an entry"] == counts["in quarantine"] == "0"
