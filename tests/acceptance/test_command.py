"""What the other tests call the command is a fork of an imported interpreter: it does what the started script does."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.command import Ended, run, running
from tests.acceptance.project import HEAD, TARGET, make_project
from tests.pairs import Pair

APPS = "tests.acceptance.apps"
NOWHERE = {
    "APP_DATABASE_URL": "mysql://app:app@127.0.0.1:1/app",
    "APP_AMQP_URL": "amqp://app:app@127.0.0.1:1/",
    "APP_QUEUE": "app",
}


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (("run", "--help"), {"COLUMNS": "60"}),
        (("run", f"{APPS}:needs", "--log-format", "json"), NOWHERE),
    ],
    ids=["help", "configuration"],
)
async def test_both_write_the_same_and_end_alike(words: tuple[str, ...], env: Mapping[str, str]) -> None:
    assert told(await run(*words, env=env)) == told(await run(*words, env=env, started=True))


def told(ended: Ended) -> tuple[int, str, str]:
    """Without the moment and the process that a line of the log begins with."""
    err = ended.err
    if err.startswith("{"):
        line = json.loads(err)
        err = json.dumps({name: line[name] for name in line.keys() - {"time", "pid"}}, sort_keys=True)
    return ended.code, ended.out, err


async def test_an_error_of_theirs_ends_both() -> None:
    for started in (False, True):
        ended = await run("run", "tests.acceptance.broken:inbox", env=NOWHERE, started=started)
        assert ended.code == 1
        assert ended.err.rstrip().endswith("ModuleNotFoundError: No module named 'no_such_library'")


async def test_a_forked_one_spawns_workers_in_its_folder_and_dies_of_a_signal(tmp_path: Path, pair: Pair) -> None:
    project = await make_project(tmp_path, pair)
    handler = '\n\n@inbox.handler("sold")\nasync def sold(event: Event, session: AsyncSession) -> None:\n'
    project.write("shop/app.py", f"{HEAD}{handler}    await write(event, session)\n")
    words = ("run", TARGET, "--workers", "2")
    async with running(*words, env=project.env, cwd=project.folder) as command:
        await command.wait_for("consuming", times=2)
        assert len(command.children()) == 2
        command.send(signal.SIGKILL)
        assert (await command.wait_ended()).code == -signal.SIGKILL
