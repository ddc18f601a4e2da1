"""Ends the servers of a run that died before it could: started with the run's directory, told their ids on its input,
and commands that end what has no id here.

Uses the standard library only: it is run as a file of its own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def start_time(pid: int) -> str | None:
    """When a process started: with its id, the one thing that a recycled id does not share."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    servers: list[tuple[int, str | None]] = []
    commands: list[list[str]] = []
    for line in sys.stdin:
        if line.strip() == "done":
            return
        if line.startswith("run "):
            commands.append(json.loads(line[4:]))
            continue
        servers.append((int(line), start_time(int(line))))
    for pid, started in servers:
        if started is None or start_time(pid) == started:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
    for command in commands:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
