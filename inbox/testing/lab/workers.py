"""What a worker of the laboratory is: the adopter's own `Inbox`, with a short wait between attempts, and watched."""

from __future__ import annotations

import inspect
import os
import pkgutil
import select
import signal
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inbox.app import Inbox
from inbox.core.crashpoints import CrashPoint, When
from inbox.errors import ConfigurationError
from inbox.testing.lab.stand_in import point_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

    from inbox.config import ConsumerSettings
    from inbox.core.lifecycle import Command, Outcome
    from inbox.ports import Passage
    from inbox.testing.lab.stand_in import StandIn

__all__ = ["Order", "Seen", "hurried", "load_target", "make", "points_seen"]

#: A point that was passed, and the type of the event that passed it; "" before that is known.
Seen = tuple[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class Order:
    """What the process of a worker needs to be one of ours.

    Attributes:
        target: `module:attribute`.
        path, folder, environment: those of the process that asks. The server process that workers are forked from has
            older ones.
        seen: file that each point is noted in when it is first passed.
        longest_delay: seconds that no wait between two attempts may exceed; None leaves the policy as it is.
        lifeline: the lab has its other end; when that closes, the lab is gone.
        stand_in: where a leased transport connects to; None where the target has none.
    """

    target: str
    path: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    seen: str
    longest_delay: float | None
    lifeline: Connection
    stand_in: StandIn | None


def make(order: Order) -> Inbox:
    """The `Inbox` of one worker; called in its process."""
    # Ctrl-C goes to the whole group of a terminal; whoever started this worker ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_the_lab, args=(order.lifeline,), name="inbox lab lifeline", daemon=True).start()
    os.environ.clear()
    os.environ.update(order.environment)
    sys.path[:] = order.path
    os.chdir(order.folder)
    inbox = load_target(order.target)
    point_at(inbox, order.stand_in)
    inbox.settings = hurried(inbox.settings, order.longest_delay)
    inbox.add_probe(SeenProbe(order.seen))
    return inbox


def _die_with_the_lab(lifeline: Connection) -> None:
    """A worker without its lab would consume on, from a queue and in tables that are somebody's."""
    watching = select.poll()
    watching.register(lifeline.fileno(), 0)  # "POLLERR, POLLHUP [are] always reported" (poll(2))
    watching.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def load_target(target: str) -> Inbox:
    """The `Inbox` at `module:attribute`, or what a function there returns.

    Args:
        target: the current directory is searched first.

    Raises:
        ConfigurationError: no such module or attribute, or something else than an `Inbox`.
    """
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"{target!r} names no Inbox; write module:attribute, such as billing.app:inbox")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = pkgutil.resolve_name(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a module that theirs imports: the traceback is what they need
        raise ConfigurationError(f"no module {module!r} here or on the path; run from your project's root") from None
    except (AttributeError, ValueError):
        raise ConfigurationError(f"module {module!r} has no {attribute!r}") from None
    if callable(found) and not isinstance(found, Inbox):
        try:
            inspect.signature(found).bind()
        except TypeError:
            raise ConfigurationError(f"{target!r} must take no arguments and return an Inbox, or be one") from None
        found = found()
    if not isinstance(found, Inbox):
        raise ConfigurationError(f"{target!r} is a {type(found).__name__}, not an Inbox")
    return found


def hurried(settings: ConsumerSettings, longest: float | None) -> ConsumerSettings:
    """The same settings, with no longer waits between attempts: their number and order stay.

    Args:
        settings: of the consumer.
        longest: seconds; None leaves them as they are.
    """
    if longest is None:
        return settings
    policy = settings.retry
    rules = tuple(
        rule if rule.delays is None else replace(rule, delays=_cut(rule.delays, longest)) for rule in policy.rules
    )
    hurried_policy = replace(
        policy,
        delays=_cut(policy.delays, longest),
        rules=rules,
        first_delay=min(policy.first_delay, longest),
        max_delay=min(policy.max_delay, longest),
    )
    # Nothing may be forgotten while it is compared, and nobody looks at the reports.
    return replace(settings, retry=hurried_policy, retention=None, report_interval=None)


def _cut(delays: tuple[float, ...], longest: float) -> tuple[float, ...]:
    return tuple(min(delay, longest) for delay in delays)


class SeenProbe:
    """Notes each point in a file when it is first passed: what is in a file outlives a SIGKILL.

    Args:
        path: of the file, which several processes append to.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._seen: set[Seen] = set()

    def before(self, command: Command, passage: Passage) -> None:
        """Note the point before `command`."""
        self._note(When.BEFORE, command, passage)

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Note the point after `command`."""
        self._note(When.AFTER, command, passage)

    def _note(self, when: When, command: Command, passage: Passage) -> None:
        event_type = "" if passage.event is None else passage.event.type
        seen = (str(CrashPoint(when, command)), event_type)
        if seen not in self._seen:
            self._seen.add(seen)
            os.write(self._file, f"{seen[0]} {seen[1]}\n".encode())


def points_seen(path: Path) -> set[Seen]:
    """What the workers that were given `path` have passed."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {(point, event_type) for point, _, event_type in (line.partition(" ") for line in lines)}
