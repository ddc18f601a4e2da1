"""A run leaves nothing behind, and asks a Docker engine without waiting for one. No service is started here."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services import docker
from tests.services.brokers import broker_dsn
from tests.services.catalog import SERVICES
from tests.services.certificates import make_certificates
from tests.services.local import free_port
from tests.services.processes import Processes
from tests.services.service import ServiceError

PATIENCE = 10.0

# Starts a process as the services are, and says its id and its run's folder.
RUN_THAT_STARTS = """
from tests.services.processes import Processes
processes = Processes()
started = processes.spawn(["sleep", "600"], log=processes.home / "log", cwd=processes.home)
print(started.pid, processes.home, flush=True)
"""
RUN_THAT_IS_KILLED = RUN_THAT_STARTS + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
RUN_THAT_CLOSES = RUN_THAT_STARTS + "processes.close()"


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(pid: int, home: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while (is_alive(pid) or home.exists()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)
    assert not home.exists()


@pytest.mark.parametrize(("program", "status"), [(RUN_THAT_IS_KILLED, -signal.SIGKILL), (RUN_THAT_CLOSES, 0)])
def test_nothing_that_a_run_started_outlives_it(program: str, status: int) -> None:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert run.returncode == status, run.stderr
    pid, home = run.stdout.split()
    wait_until_gone(int(pid), Path(home))


def test_after_closing_nothing_is_started(tmp_path: Path) -> None:
    processes = Processes()
    processes.close()

    with pytest.raises(ServiceError, match="is ending"):
        processes.spawn(["sleep", "600"], log=tmp_path / "log", cwd=tmp_path)


def fake_docker(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return program


def test_a_client_that_waits_for_an_engine_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_docker(tmp_path, "exec sleep 600", monkeypatch)
    monkeypatch.setattr(docker, "ENGINE_PATIENCE", 0.05)

    with pytest.raises(ServiceError, match="no Docker engine answers"):
        docker.find_compose()


def test_an_engine_without_compose_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_docker(tmp_path, '[ "$1" = version ]', monkeypatch)

    with pytest.raises(ServiceError, match="compose"):
        docker.find_compose()


def test_a_container_is_controlled_by_compose_in_a_project_of_this_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    fake_docker(tmp_path, f'echo "$@ port $INBOX_RABBIT4_PORT" >> {told}', monkeypatch)
    processes = Processes()
    try:
        certificates = make_certificates(processes.directory("tls"))
        compose = docker.Compose(docker.find_compose(), processes, certificates)
        broker = compose.service(SERVICES["rabbit4"])
        broker.kill9()
        broker.pause()
        broker.resume()
        broker.stop()
        broker.control("list_users")
        compose.close()
        files = f"--file {docker.COMPOSE_FILE} --file {compose.home / 'override.yml'}"
    finally:
        processes.close()

    start = f"compose --project-name {processes.home.name} --profile oldest {files} "
    commands = [line.removeprefix(start) for line in told.read_text().splitlines() if line.startswith(start)]
    assert broker.dsn == broker_dsn(broker.port)
    assert commands == [
        f"{command} port {broker.port}"
        for command in (
            "kill --signal SIGKILL rabbit4",
            "pause rabbit4",
            "unpause rabbit4",
            "stop rabbit4",
            "exec --no-TTY rabbit4 rabbitmqctl list_users",
            "down --volumes --timeout 5",
        )
    ]


def test_two_runs_are_never_given_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    claims = f"import sys; from tests.services.local import claim_port; sys.exit(claim_port({port}))"
    assert subprocess.run([sys.executable, "-c", claims], check=False).returncode == 0, "another run does not get it"
    drawn = iter([port, port + 1, port + 1])
    monkeypatch.setattr("random.randint", lambda *_: next(drawn))
    monkeypatch.setattr("tests.services.local._is_free", lambda _: True)
    assert free_port() != port, "nor does this one again"
