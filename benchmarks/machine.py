"""What the figures were taken on: versions, the machine, and where the data lay."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import NODE_FOLDER, ROOT

_LIBRARIES: Final = (
    "SQLAlchemy",
    "aiomysql",
    "PyMySQL",
    "asyncmy",
    "aio-pika",
    "aiormq",
    "pamqp",
    "uvloop",
    "faststream",
)


def machine() -> dict[str, Any]:
    """The machine, and how busy it was before the run."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    """Of Python, of what the consumers use, and of Node where it was used."""
    found = {"python": sys.version.split()[0]}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if (node := _output(["node", "--version"])) and NODE_FOLDER.is_dir():
        found["node"] = node.lstrip("v")
        for library in ("amqplib", "mysql2"):
            found[library] = json.loads((NODE_FOLDER / f"node_modules/{library}/package.json").read_text())["version"]
    return found


def commit() -> str:
    """Of the checkout, with a `+` where files differ from it; `unknown` outside of one."""
    found = _output(["git", "rev-parse", "--short=10", "HEAD"])
    if not found:
        return "unknown"
    changed = _output(["git", "status", "--porcelain", "--untracked-files=no", "--", "inbox", "benchmarks"])
    return found + ("+" if changed else "")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - words of ours
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
