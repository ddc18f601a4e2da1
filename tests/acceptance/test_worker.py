"""The worker as its operators meet it: started by its command, fed by the example's publisher, stopped by signals."""

import asyncio
import os
import signal

import pytest

from tests.acceptance.billing import TARGET, Billing
from tests.acceptance.command import Ended, run, running
from tests.facts import wait_until
from tests.pairs import Driver


def is_clean(ended: Ended) -> bool:
    """Stopped as asked, with nothing on standard error that a person would have to look into."""
    noise = [word for word in ("Traceback", "Error", "ERROR", "Exception", "Warning:") if word in ended.err]
    return ended.code == 0 and not noise


@pytest.mark.parametrize(("number", "driver"), [(signal.SIGTERM, "aiomysql"), (signal.SIGINT, "asyncmy")])
async def test_each_job_is_entered_once_and_a_signal_drains(
    billing: Billing, driver: Driver, number: signal.Signals
) -> None:
    env = billing.env | {"BILLING_DATABASE_URL": billing.pair.url_for(driver)}
    async with running("run", TARGET, env=env) as worker:
        await worker.wait_for("consuming")
        first = await billing.publish(count=60, duplicates=30, failed_share=0.2)
        again = await billing.publish(count=60, failed_share=0.2, seed=first["seed"])
        assert again["completed"] == first["completed"]
        await billing.wait_entered(60)
        ended = await worker.stop(number)
    assert is_clean(ended), ended.err
    assert "applied=60 duplicate=90" in ended.err
    await billing.judge(first)


async def test_a_stop_in_the_middle_of_the_work_loses_nothing(billing: Billing) -> None:
    async with running("run", TARGET, env=billing.env) as worker:
        await worker.wait_for("consuming")
        publishing = asyncio.ensure_future(billing.publish(count=400, duplicates=100))
        await wait_until(lambda: billing.count("entry") >= 100)
        ended = await worker.stop()
    assert is_clean(ended), ended.err
    summary = await publishing
    left = await billing.ready()
    assert 0 < left < 500, "it stopped in the middle"
    async with running("run", TARGET, env=billing.env) as worker:
        await billing.wait_entered(400)
        ended = await worker.stop()
    assert is_clean(ended), ended.err
    await billing.judge(summary)


async def test_a_killed_worker_of_three_is_started_again(billing: Billing) -> None:
    async with running("run", TARGET, "--workers", "3", env=billing.env) as supervisor:
        await supervisor.wait_for("connection 1", times=3)
        publishing = asyncio.ensure_future(billing.publish(count=500, duplicates=100))
        await wait_until(lambda: billing.count("entry") >= 100)
        before = supervisor.children()
        assert len(before) == 3
        os.kill(before[1], signal.SIGKILL)
        await supervisor.wait_for("connection 1", times=4)
        after = supervisor.children()
        summary = await publishing
        await billing.wait_entered(500)
        ended = await supervisor.stop()
    assert len(after) == 3
    assert before[1] not in after
    assert ended.code == 0
    assert "died (signal SIGKILL); starting it again" in ended.err
    assert "Traceback" not in ended.err
    await billing.judge(summary)


async def test_ctrl_c_reaches_every_process_of_the_terminal(billing: Billing) -> None:
    async with running("run", TARGET, "--workers", "2", env=billing.env) as supervisor:
        await supervisor.wait_for("connection 1", times=2)
        os.killpg(supervisor.pid, signal.SIGINT)
        ended = await supervisor.wait_ended()
    assert is_clean(ended), ended.err


async def test_workers_whose_supervisor_was_killed_stop_as_well(billing: Billing) -> None:
    async with running("run", TARGET, "--workers", "2", env=billing.env) as supervisor:
        await supervisor.wait_for("connection 1", times=2)
        supervisor.send(signal.SIGKILL)
        ended = await supervisor.wait_ended()  # the workers hold its standard error: it ends with the last of them
    assert ended.code == -signal.SIGKILL
    assert ended.err.count("ended: nothing came") == 2
    assert "Traceback" not in ended.err


async def test_the_start_up_table_says_what_runs_and_no_secret(billing: Billing) -> None:
    async with running("run", TARGET, env=billing.env) as worker:
        await worker.wait_for("consuming")
        ended = await worker.stop()
    pair = billing.pair
    for fact in (
        "consumer", "billing", f"{pair.database.host}:{pair.database.port}/{pair.schema}", billing.queue,
        "studio.lerian.job.completed", "Billing.charge", "Billing.note", "concurrency", "prefetch",
    ):  # fmt: skip
        assert fact in ended.err, fact
    assert ":inbox@" not in ended.err
    async with running("run", TARGET, "--quiet", env=billing.env) as worker:
        await worker.wait_for("consuming")
        quiet = await worker.stop()
    assert "concurrency" not in quiet.err


# ------------------------------------------------------------------ help
async def help_of(*words: str) -> str:
    ended = await run(*words, "--help")
    assert (ended.code, ended.err) == (0, "")
    return " ".join(ended.out.split())


async def test_help_teaches() -> None:
    top, worker, schema = await asyncio.gather(help_of(), help_of("run"), help_of("schema"))
    for piece in ("run", "schema", "workers", "tables"):
        assert piece in top
    for piece in ("module:attribute", "--workers", "--log-level", "Exit codes", "0 stopped", "2 not started"):
        assert piece in worker, piece
    for piece in ("print", "apply", "check", "Exit codes", "Three ways", "Alembic"):
        assert piece in schema, piece


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "examples.billing.app:inbox", "--workers", "0"),
        ("run", "examples.billing.app:inbox", "--log-level", "loud"),
        ("walk",),
    ],
    ids=" ".join,
)
async def test_a_wrong_word_is_told_and_costs_exit_code_2(words: tuple[str, ...]) -> None:
    ended = await run(*words)
    assert ended.code == 2
    assert "Usage:" in ended.err
    assert "Traceback" not in ended.err
