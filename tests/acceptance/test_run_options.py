"""What the command line offers: a log for programs, completion, its version, and refusals before anything starts."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command import ROOT, Command, clean_environment, run, running
from tests.acceptance.project import HEAD, SECRET, TARGET, Project, make_project
from tests.pairs import Pair

#: Handlers that fail in every way that could bring what an event holds into the log.
NASTY = f"""{HEAD}

class Nasty(Exception):
    def __str__(self):
        raise ValueError("{SECRET}")

    __repr__ = __str__


async def fail(error):
    raise error


def fail_in_thread():
    raise OSError("{SECRET}")


@inbox.handler("sold")
async def sold(event: Event, session: AsyncSession) -> None:
    await write(event, session)
    match event.id.partition("-")[0]:
        case "text":
            raise ValueError(event.data)
        case "nasty":
            raise Nasty(event.data)
        case "reject":
            raise Reject(f"card {SECRET}")
        case "task":
            asyncio.create_task(fail(KeyError("{SECRET}")))
        case "thread":
            threading.Thread(target=fail_in_thread).start()
        case "own":
            try:
                await fail(LookupError("{SECRET}"))
            except LookupError:
                logging.getLogger("shop").exception("no such card")
"""
NAMES_ITS_LOOP = f"""{HEAD}

@inbox.handler("sold")
async def sold(event: Event, session: AsyncSession) -> None:
    kind = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    logging.getLogger("shop").warning("handled on %s", kind)
"""
KINDS = ("text", "nasty", "reject", "task", "thread", "own")
ENVELOPE = {"time", "level", "logger", "pid", "message", "what"}


@pytest.fixture
async def project(tmp_path: Path, pair: Pair) -> Project:
    return await make_project(tmp_path, pair)


def parsed(command: Command) -> list[dict[str, Any]]:
    """What was written so far: every line is an object, in the envelope."""
    lines = [json.loads(line) for line in command.err.splitlines()]
    assert all(line.keys() >= ENVELOPE for line in lines)
    return lines


async def wait_for_facts(command: Command, what: str, number: int) -> None:
    await command.wait_for(f'"what": "{what}"', times=number)


async def test_every_line_of_every_process_is_an_object_and_gives_nothing_away(project: Project) -> None:
    project.write("shop/app.py", NASTY)
    env = project.env | {"INBOX_LOG_FORMAT": "json", "INBOX_LOG_LEVEL": "debug"}
    async with running("run", TARGET, "--workers", "2", env=env, cwd=project.folder) as command:
        await wait_for_facts(command, "consuming", 2)
        await project.publish(*(f"{kind}-{n}" for kind in KINDS for n in range(4)))
        await wait_for_facts(command, "quarantined", 12)
        await wait_for_facts(command, "not-caught", 4)
        await command.wait_for("no such card", times=4)
        os.kill(command.children()[0], signal.SIGKILL)
        await wait_for_facts(command, "worker-died", 1)
        await wait_for_facts(command, "consuming", 3)
        ended = await command.stop()
    assert ended.code == 0
    lines = parsed(command)
    assert SECRET not in ended.err
    assert len({line["pid"] for line in lines}) == 4, "two workers, the one above them, and one that came later"
    told = {line["what"]: line for line in lines}
    assert told["starting"]["settings"]["consumer"] == "shop"
    assert told["starting"]["workers"] == 2
    assert told["consuming"]["queue"] == project.queue
    assert (told["worker-died"]["worker"], told["worker-died"]["how"]) in {(1, "signal SIGKILL"), (2, "signal SIGKILL")}
    assert told["not-caught"]["error"] == "OSError"
    assert sum(line["counts"].get("quarantined", 0) for line in lines if line["what"] == "ended") <= 12
    refused = [line for line in lines if line["what"] == "quarantined"]
    assert {line["reason"] for line in refused} == {"handler-error", "rejected"}
    assert {line["detail"] and line["detail"].partition(" ")[0] for line in refused} == {"ValueError", "Nasty", None}
    own = next(line for line in lines if line["logger"] == "shop")
    assert (own["error"], own["message"], own["what"]) == ("LookupError", "no such card", None)
    assert own["place"].startswith(f"{project.folder}/shop/app.py:")
    left = [line for line in lines if line["logger"] == "asyncio"]
    assert {(line["error"], line["message"]) for line in left} <= {("KeyError", "Task exception was never retrieved")}


async def test_an_option_wins_over_the_environment_and_text_stays_text(project: Project) -> None:
    project.write("shop/app.py", NASTY)
    env = project.env | {"INBOX_LOG_FORMAT": "json", "INBOX_LOG_LEVEL": "debug"}
    await project.declare()
    await project.publish("reject")
    words = ("run", TARGET, "--quiet", "--log-format", "TEXT", "--log-level", "Warning")
    async with running(*words, env=env, cwd=project.folder) as command:
        await command.wait_for("quarantined: event=")
        ended = await command.stop()
    (line,) = ended.err.splitlines()
    assert " WARNING inbox[" in line
    assert "{" not in line


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_workers_run_on_the_loop_that_is_asked_for(project: Project, loop: str, workers: str) -> None:
    project.write("shop/app.py", NAMES_ITS_LOOP)
    await project.declare()
    await project.publish("a", "b")
    words = ("run", TARGET, "--workers", workers, "--loop", loop.upper(), "--log-format", "json")
    async with running(*words, env=project.env, cwd=project.folder) as command:
        await command.wait_for("handled on", times=2)
        ended = await command.stop()
    assert ended.code == 0
    lines = parsed(command)
    assert {line["message"] for line in lines if line["logger"] == "shop"} == {f"handled on {loop}"}
    assert [line["loop"] for line in lines if line["what"] == "starting"] == [loop]


async def test_a_refusal_and_a_defect_of_theirs_are_objects_too() -> None:
    for target, code, what, error in (
        ("nowhere.at.all:inbox", 2, "not-started", "ConfigurationError"),
        ("tests.acceptance.broken:inbox", 1, "not-caught", "ModuleNotFoundError"),
    ):
        ended = await run("run", target, "--log-format", "json")
        line = json.loads(ended.err)
        assert (ended.code, line["what"], line["error"]) == (code, what, error)


# ------------------------------------------------------------------ refused before anything starts
@pytest.mark.parametrize(
    ("words", "env", "told"),
    [
        (("--reload", "--workers", "2"), {}, "--reload goes with one worker"),
        (("--reload-dir", "tests"), {}, "it says what --reload watches"),
        (("--reload", "--reload-dir", "tests/nowhere"), {}, "'--reload-dir'"),
        (("--reload", "--reload-dir", "Makefile"), {}, "'--reload-dir'"),
        (("--log-format", "xml"), {}, "'text', 'json'"),
        ((), {"INBOX_LOG_FORMAT": "xml"}, "'xml' is not one of 'text', 'json'"),
        ((), {"INBOX_LOG_LEVEL": "loud"}, "'loud' is not one of 'debug'"),
        (("--workers", "257"), {}, "'--workers'"),
        (("--loop", "libuv"), {}, "'auto', 'asyncio', 'uvloop'"),
    ],
    ids=str,
)
async def test_a_wrong_option_is_told_at_once(words: tuple[str, ...], env: dict[str, str], told: str) -> None:
    ended = await run("run", "no.such.module:inbox", *words, env=env)
    assert ended.code == 2
    assert told in ended.err
    assert "no.such.module" not in ended.err


@pytest.mark.parametrize(
    ("target", "fix"),
    [
        ("nowhere.at.all:inbox", "run from your project's root"),
        ("sys:inbox", "no files of yours"),
        ("billing", "write mod"),
    ],
)
async def test_reload_wants_something_to_watch(target: str, fix: str) -> None:
    ended = await run("run", target, "--reload")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "not started: " in ended.err
    assert fix in ended.err


def test_reload_without_its_library_names_the_extra() -> None:
    program = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "watchfiles" else found(name, package)
from inbox.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "run", "examples.billing.app:inbox", "--reload"],
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.endswith("not started: --reload needs watchfiles: pip install 'idempotent-inbox[cli,reload]'\n")
    assert done.stderr.count("\n") == 1


# ------------------------------------------------------------------ around the command
async def test_the_module_is_the_command_and_tells_its_version() -> None:
    outputs = []
    for module in ("inbox", "inbox.cli"):
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, "--version",
            cwd=ROOT, env=clean_environment(), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await program.communicate()
        assert program.returncode == 0
        outputs.append(output)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith(b"inbox ")


async def test_the_module_runs_several_workers(project: Project) -> None:
    """Each is spawned, and imports the module that the first process was started by."""
    project.write("shop/app.py", NASTY)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inbox", "run", TARGET, "--workers", "2", "--log-format", "json",
        cwd=project.folder, env=clean_environment() | project.env | {"PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    command = Command(program)
    await wait_for_facts(command, "consuming", 2)
    assert (await command.stop()).code == 0
    assert [line["what"] for line in parsed(command)].count("ended") == 2


async def test_help_of_run_teaches() -> None:
    ended = await run("run", "--help")
    text = " ".join(ended.out.split())
    for piece in (
        "Example: inbox run billing.app:inbox", "--reload --reload-dir ../shared", "INBOX_LOG_FORMAT=json inbox run",
        "Environment: INBOX_LOG_LEVEL", "[env var: INBOX_LOG_FORMAT]", "Exit codes: 0", "3 stopped hard",
    ):  # fmt: skip
        assert piece in text, piece


def in_bash(home: Path, script: str) -> str:
    """What bash prints, with an `inbox` on its path and a home of its own."""
    bash = shutil.which("bash")
    assert bash is not None, "the Makefile needs it too"
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    command = programs / "inbox"
    command.write_text(f"#!{sys.executable}\nfrom inbox.cli import main\nmain()\n")
    command.chmod(0o755)
    env = clean_environment() | {
        "HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    # A second command, or bash gives its process to the first, which then finds no shell above it.
    done = subprocess.run([bash, "-c", f"{script}\n:"], env=env, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


COMPLETE = """
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _inbox_completion inbox; echo "${COMPREPLY[*]}"; }
complete_words inbox r
complete_words inbox run --log-format ""
complete_words inbox run --rel
"""


def test_bash_completes_what_the_command_shows(tmp_path: Path) -> None:
    shown = in_bash(tmp_path, f'eval "$(inbox --show-completion)"\n{COMPLETE}')
    assert [line.split() for line in shown.splitlines()] == [["run"], ["text", "json"], ["--reload", "--reload-dir"]]


def test_bash_completes_what_the_command_has_installed(tmp_path: Path) -> None:
    in_bash(tmp_path, "inbox --install-completion")
    shown = in_bash(tmp_path, f'source "$HOME/.bashrc"\n{COMPLETE}')
    assert [line.split() for line in shown.splitlines()] == [["run"], ["text", "json"], ["--reload", "--reload-dir"]]
