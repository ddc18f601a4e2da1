"""What the supervised processes of `test_worker_process.py` run: apart, for each of them imports this file anew."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from inbox.runtime.worker import Exit

Target = Callable[..., int]


def say(folder: str, word: str) -> int:
    """Leave a mark; returns how many of this word there are now."""
    (Path(folder) / f"{word}-{os.getpid()}").touch()
    return len(list(Path(folder).glob(f"{word}-*")))


def stops_when_asked(consuming: Callable[[], None], folder: str, wanted: int, supervisor: int) -> int:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    consuming()
    if say(folder, "started") == wanted:
        os.kill(supervisor, signal.SIGTERM)
    stopped.wait(30)
    return Exit.STOPPED


def dies_once(consuming: Callable[[], None], folder: str, supervisor: int, code: int | None) -> int:
    """Dies the first time: of a signal, or as `os._exit` in a handler ends a process."""
    consuming()
    if say(folder, "started") == 1:
        if code is None:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(code or 0)
    os.kill(supervisor, signal.SIGTERM)
    threading.Event().wait(30)
    return Exit.STOPPED


def ends_with(consuming: Callable[[], None], code: int) -> int:
    return code


def ignores_the_signal(consuming: Callable[[], None], supervisor: int) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    consuming()
    os.kill(supervisor, signal.SIGTERM)
    threading.Event().wait(30)
    return Exit.STOPPED
