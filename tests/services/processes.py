"""Server processes of this run, none of which outlives it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.services.service import ServiceError

STOP_PATIENCE: Final = 30.0
#: Octets that the data of one run's servers may come to.
ROOM: Final = 6 * 2**30
NOBODY: Final = 65534  # as root, servers run as the user that owns nothing


class Processes:
    """Starts processes in a directory of this run's, and ends them with it.

    A guardian in a session of its own ends what is left when this process goes without closing, SIGKILL included.

    Args:
        data: folder in which that directory is made; None takes INBOX_SERVICES_DATA, or what suits tests.
    """

    def __init__(self, data: Path | None = None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="inbox-tests-", dir=data or _where()))
        self.home.chmod(0o755)
        self._lock = threading.Lock()
        self._started: list[subprocess.Popen[bytes]] = []
        self._guardian: subprocess.Popen[bytes] | None = None
        self._closed = False

    def directory(self, name: str) -> Path:
        made = self.home / name
        made.mkdir(exist_ok=True)
        give_away(made)
        return made

    def spawn(
        self, command: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start in the background, in a process group of its own (Ctrl-C reaches only the tests)."""
        with self._lock, log.open("ab") as output:
            if self._closed:
                raise ServiceError("this run is ending: nothing is started any more")
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._started.append(process)
            self._call_guardian(f"{process.pid}\n")
        return process

    def at_death(self, command: Sequence[str]) -> None:
        """Have the guardian run this too, should this process go without closing."""
        with self._lock:
            self._call_guardian(f"run {json.dumps(command)}\n")

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for process in self._started:
                end(process)
            if self._guardian is not None:
                self._guardian.communicate(b"done\n")
            shutil.rmtree(self.home, ignore_errors=True)

    def _call_guardian(self, line: str) -> None:
        if self._guardian is None:
            command = [sys.executable, "-S", str(Path(__file__).with_name("guardian.py")), str(self.home)]
            self._guardian = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self._guardian.stdin is not None
        self._guardian.stdin.write(line.encode())
        self._guardian.stdin.flush()


def is_root() -> bool:
    return os.geteuid() == 0


def _where() -> str | None:
    """In memory where there is room: a SIGKILL takes nothing from there, and most of a test is its CREATE TABLEs.

    Short in any case, and for root where another user can get at it: a Unix socket's path may be 107 bytes long.
    INBOX_SERVICES_DATA names another folder, as for measurements, which need a disk.
    """
    if chosen := os.environ.get("INBOX_SERVICES_DATA"):
        return chosen
    in_memory = Path("/dev/shm")  # noqa: S108 - a name that nobody can guess is made in it
    if in_memory.is_dir() and os.access(in_memory, os.W_OK) and shutil.disk_usage(in_memory).free >= ROOM:
        return str(in_memory)
    return "/tmp" if is_root() else None  # noqa: S108 - as above


def give_away(path: Path) -> None:
    """As root, let the user that the servers run as own this path."""
    if is_root():
        os.chown(path, NOBODY, NOBODY)


def end(process: subprocess.Popen[bytes], *, sig: int = signal.SIGTERM) -> None:
    """Signal a process that we started and wait until it is gone; the group goes with it."""
    if process.poll() is None:
        process.send_signal(sig)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run(
    command: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str] | None = None, timeout: float = 120
) -> str:
    """Run to the end; what it printed goes to the log and is returned. A failure shows the log's last lines."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
        text=True,
        errors="replace",
    )
    with log.open("a") as output:
        output.write(done.stdout)
    if done.returncode != 0:
        raise ServiceError(f"{command[0]} failed with {done.returncode}:\n{last_lines(log)}")
    return done.stdout


def last_lines(log: Path, count: int = 12) -> str:
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
