"""A program that has imported what the `inbox` command imports, and branches into whatever is ordered of it.

A start of the command takes most of a second of a processor, nearly all of it for imports that are the same each time;
a fork of an interpreter that has them takes a hundredth. Each branch runs the very file, or module, that would have
been started, as `__main__`, with the words, environment, folder and files of its order, and ends as interpreters end.
The tests start it (`tests/branches.py`) as `python -m tests.stem NUMBER`, with that of a socket; it ends with them.
"""

import gc
import json
import multiprocessing.process
import os
import runpy
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import inbox.cli

#: What a command imports only when it runs.
_LATE = ("sqlalchemy.dialects.mysql.aiomysql", "aiomysql")
#: Left to branches: all that this interpreter found without a folder of its own and without PYTHONPATH.
_PATH = sys.path[1:]


def _wait_for_order(orders: socket.socket) -> dict[str, Any]:
    """Return in a process that was forked for an order, and only there."""
    # `inbox.cli.main` is left to the branches: imported, it takes the place of the function of that name.
    commands = {f"inbox.cli.{module.name}" for module in iter_modules(inbox.cli.__path__)}
    for name in (*sorted(commands - {"inbox.cli.main", "inbox.cli.__main__"}), *_LATE):
        import_module(name)
    assert threading.active_count() == 1, "a thread would be missing in every branch"
    gc.freeze()  # or the first collection of each branch would copy everything
    while True:
        order, files, _, _ = socket.recv_fds(orders, 1 << 20, 4)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            return _branch(json.loads(order), *files)
        for file in files:
            os.close(file)
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


def _branch(order: dict[str, Any], out: int, err: int, told: int) -> dict[str, Any]:
    """Fork once more, for one process has to wait for the other and say how it ended. Standard input stays empty."""
    branch = os.fork()
    if branch == 0:
        os.setsid()
        os.write(told, b"%d\n" % os.getpid())
        for number, file in enumerate((out, err), 1):
            os.dup2(file, number)
        os.closerange(3, max(out, err, told) + 1)
        return order
    for file in (out, err):
        os.close(file)
    _, status = os.waitpid(branch, 0)
    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(order: dict[str, Any]) -> None:
    """What an interpreter that is started anew finds, and this one found otherwise."""
    del sys.modules["tests"]  # it may be another one in the order's folder
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    multiprocessing.process.ORIGINAL_DIR = order["folder"]  # type: ignore[attr-defined] # where spawned workers begin
    first = order["folder"] if order["is_module"] else str(Path(order["program"]).parent)
    sys.path[:] = [first, *filter(None, order["environment"].get("PYTHONPATH", "").split(os.pathsep)), *_PATH]
    sys.argv = [order["program"], *order["words"]]


if __name__ == "__main__":
    order = _wait_for_order(socket.socket(fileno=int(sys.argv[1])))
    _become(order)
    if order["is_module"]:
        runpy.run_module(order["program"], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(order["program"], run_name="__main__")
