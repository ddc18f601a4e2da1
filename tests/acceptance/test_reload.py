"""`inbox run --reload`: files are edited while it runs, and what runs afterwards is the new code."""

import os
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.acceptance.command import Command, running
from tests.acceptance.project import HEAD, TARGET, Project, make_project
from tests.facts import wait_until
from tests.pairs import Pair

APP = f"""{HEAD}

@inbox.handler("sold")
async def sold(event: Event, session: AsyncSession) -> None:
    await write(event, session)
"""

#: Of the first version, the handler is under way until the file `go` appears: it looks for that, and gives way between.
SLOW = f"""{HEAD}

@inbox.handler("sold")
async def sold(event: Event, session: AsyncSession) -> None:
    await write(event, session)
    Path("begun").touch()
    while VERSION == 1 and not Path("go").exists():
        await asyncio.sleep(0.01)
"""


@pytest.fixture
async def project(tmp_path: Path, pair: Pair) -> Project:
    return await make_project(tmp_path, pair)


def version(number: int, program: str = APP) -> str:
    return program.replace("VERSION = 1", f"VERSION = {number}")


def reloading(project: Project, *words: str) -> AbstractAsyncContextManager[Command]:
    return running("run", TARGET, "--reload", "--quiet", *words, env=project.env, cwd=project.folder)


async def wait_noted(project: Project, *notes: tuple[str, int]) -> None:
    await wait_until(lambda: len(project.notes()) >= len(notes))
    assert project.notes() == [*notes]


def lines_with(command: Command, piece: str) -> list[str]:
    return [line for line in command.err.splitlines() if piece in line]


async def test_an_edit_runs_and_a_broken_one_is_a_line(project: Project) -> None:
    project.write("shop/app.py", APP)
    async with reloading(project) as worker:
        await worker.wait_for("consuming")
        await project.publish("a")
        await wait_noted(project, ("a", 1))
        # Of the same length and in the same second, so that byte code of the first would pass for its own.
        project.write("shop/app.py", version(2))
        await worker.wait_for("consuming", times=2)
        await project.publish("a", "b")
        await wait_noted(project, ("a", 1), ("b", 2))
        project.write("shop/app.py", f"{version(3)}\nsold(")
        await worker.wait_for("not started: ")
        project.write("shop/app.py", version(3).replace('"shop",', '"",'))
        await worker.wait_for("not started: ", times=2)
        project.write("shop/app.py", f"{version(3)}\nundefined\n")
        await worker.wait_for("not started: ", times=3)
        await project.publish("c")
        project.write("shop/app.py", version(4))
        await wait_noted(project, ("a", 1), ("b", 2), ("c", 4))
        ended = await worker.stop()
    assert ended.code == 0
    assert "Traceback" not in ended.err
    syntax, configuration, name = lines_with(worker, "not started: ")
    assert "SyntaxError at shop/app.py:" in syntax
    assert "was never closed" in syntax
    assert "name" in configuration
    assert "NameError at shop/app.py:" in name
    assert len(lines_with(worker, "changed: shop/app.py; starting again")) == 5


async def test_what_was_begun_is_finished_by_the_code_that_began_it(project: Project) -> None:
    project.write("shop/app.py", SLOW)
    async with reloading(project) as worker:
        await worker.wait_for("consuming")
        await project.publish("a", "a")
        await wait_until((project.folder / "begun").exists)
        project.write("shop/app.py", version(2, SLOW))
        await worker.wait_for("changed: ")
        assert project.notes() == [], "it is under way"
        (project.folder / "go").touch()
        await worker.wait_for("consuming", times=2)
        await project.publish("b")
        await wait_noted(project, ("a", 1), ("b", 2))
        ended = await worker.stop(signal.SIGINT)
    assert ended.code == 0
    assert "Traceback" not in ended.err


async def test_another_folder_and_new_files_count_and_other_files_do_not(project: Project, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    project.write("shared/prices.py", "PRICE = 1\n")
    project.write("shop/app.py", APP)
    async with reloading(project, "--reload-dir", str(shared), "--reload-dir", str(project.folder / "shop")) as worker:
        await worker.wait_for("consuming")
        project.write("shop/notes.txt", "no code")
        project.write("shared/prices.py", "PRICE = 2\n")
        await worker.wait_for("consuming", times=2)
        project.write("shop/discounts.py", "")
        await worker.wait_for("consuming", times=3)
        (project.folder / "shop/discounts.py").unlink()
        await worker.wait_for("consuming", times=4)
        ended = await worker.stop()
    assert ended.code == 0
    files = [line.partition("changed: ")[2] for line in lines_with(worker, "changed: ")]
    assert files == [
        f"{name}; starting again" for name in ("shared/prices.py", "shop/discounts.py", "shop/discounts.py")
    ]


async def test_a_worker_that_was_killed_starts_again_after_the_next_change(project: Project) -> None:
    project.write("shop/app.py", APP)
    async with reloading(project) as worker:
        await worker.wait_for("consuming")
        (child,) = worker.children()
        os.kill(child, signal.SIGKILL)
        await worker.wait_for("worker 1 died (signal SIGKILL); starting it again after the next change")
        project.write("shop/app.py", version(2))
        await worker.wait_for("consuming", times=2)
        ended = await worker.stop()
    assert ended.code == 0


async def test_it_stops_while_nothing_runs_and_its_worker_stops_with_it(project: Project) -> None:
    project.write("shop/app.py", "sold(\n")
    async with reloading(project) as worker:
        await worker.wait_for("not started: SyntaxError")
        os.killpg(worker.pid, signal.SIGINT)
        assert (await worker.wait_ended()).code == 0
    project.write("shop/app.py", APP)
    async with reloading(project) as worker:
        await worker.wait_for("consuming")
        worker.send(signal.SIGKILL)
        ended = await worker.wait_ended()  # its worker holds its standard error: it ends with that
    assert ended.err.count("ended: nothing came") == 1
    assert "Traceback" not in ended.err


async def test_a_handler_that_does_not_come_back_does_not_keep_the_old_code(project: Project) -> None:
    """Its unit is undone, and the new code has the event."""
    stuck = SLOW.replace("concurrency=2", "concurrency=2, shutdown_patience=0.2, cancel_patience=0.2").replace(
        "        await asyncio.sleep(0.01)", "        threading.Event().wait(0.01)"
    )
    project.write("shop/app.py", stuck)
    async with reloading(project) as worker:
        await worker.wait_for("consuming")
        await project.publish("a")
        await wait_until((project.folder / "begun").exists)
        project.write("shop/app.py", version(2, stuck))
        await worker.wait_for("stopped hard; still running: shop.app.sold")
        await wait_noted(project, ("a", 2))
        ended = await worker.stop()
    assert ended.code == 0
