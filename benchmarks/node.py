"""Node's consumer, put into a build folder with its libraries."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.measure import NODE_FOLDER

_SOURCE: Final = Path(__file__).parent / "consumers/node"
_PATIENCE: Final = 180.0


def why_no_node() -> str | None:
    """Install what is not there yet.

    Returns:
        Why Node cannot take part; None where it can.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "there is no npm on PATH"
    NODE_FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "consumer.js"):
        shutil.copyfile(_SOURCE / name, NODE_FOLDER / name)
    if _is_installed():
        return None
    words = [npm, "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        subprocess.run(words, cwd=NODE_FOLDER, check=True, capture_output=True, timeout=_PATIENCE)  # noqa: S603 - as above
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return f"npm install failed ({type(error).__name__})"
    return None if _is_installed() else "npm installed other versions than package.json names"


def _is_installed() -> bool:
    wanted = json.loads((_SOURCE / "package.json").read_text())["dependencies"]
    for name, version in wanted.items():
        manifest = NODE_FOLDER / f"node_modules/{name}/package.json"
        if not manifest.exists() or json.loads(manifest.read_text())["version"] != version:
            return False
    return True
