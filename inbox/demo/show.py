"""What people see of it: a picture that moves on a terminal, a line for each thing that happens elsewhere."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from inbox.demo.board import Tally
from inbox.demo.judge import rows_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import RenderableType

    from inbox.demo.crew import Death
    from inbox.demo.director import Result, Standing

__all__ = ["LineShow", "LiveShow", "Show", "print_result"]

_LAST_KILLS: Final = 8
#: Seconds between two pictures.
_FRAME: Final = 0.1

#: What came back after a kill, and what else the workers saw.
_WORDS: Final = {
    Tally.DUPLICATES: "duplicates recognised",
    Tally.CAME_AGAIN: "deliveries that came again",
    Tally.SUSPECTS: "suspects run alone",
    Tally.QUARANTINED: "put into quarantine",
}


class Show(Protocol):
    """Who is told of everything on the way."""

    def say(self, line: str) -> None:
        """A sentence for people."""
        ...

    def death(self, death: Death, kills: int, standing: Standing) -> None:
        """A worker has died, and its successor is starting; so many kills there were by then."""
        ...

    def update(self, standing: Standing) -> None:
        """How far it is. Called often."""
        ...


class LineShow:
    """A line for each thing that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, line: str) -> None:
        """See `Show.say`."""
        self._console.print(Text(f"demo: {line}"), soft_wrap=True)

    def death(self, death: Death, kills: int, standing: Standing) -> None:
        """See `Show.death`."""
        self.say(f"{_killed(death, kills)}; {standing.settled:,} of {standing.deliveries:,} deliveries settled")

    def update(self, standing: Standing) -> None:
        """Nothing: the kills are told, and they come all the time."""


class LiveShow:
    """A picture on a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._kills: deque[str] = deque(maxlen=_LAST_KILLS)
        self._drawn_at = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """See `Show.say`."""
        self._live.console.print(Text(f"demo: {line}"))

    def death(self, death: Death, kills: int, standing: Standing) -> None:
        """See `Show.death`."""
        self._kills.append(_killed(death, kills))

    def update(self, standing: Standing) -> None:
        """See `Show.update`."""
        now = time.monotonic()
        if now - self._drawn_at >= _FRAME:
            self._drawn_at = now
            self._live.update(self._picture(standing), refresh=True)

    def _picture(self, standing: Standing) -> RenderableType:
        bars = Table.grid(padding=(0, 1))
        for what, done, total in (
            ("deliveries settled", standing.settled, standing.deliveries),
            ("workers killed", standing.kills, standing.kills_wanted),
        ):
            bars.add_row(what, ProgressBar(total=max(total, 1), completed=done, width=40), f"{done:,} of {total:,}")
        back = "   ".join(f"{words}: {standing.tallies[tally]:,}" for tally, words in _WORDS.items())
        return Group(bars, Text(back, style="cyan"), *(Text(kill, style="red") for kill in self._kills))


def _killed(death: Death, kills: int) -> str:
    who = f"worker {death.place + 1} (process {death.pid})"
    if death.blow is None:
        return f"{who} ended by itself, exit code {death.exit_code}"
    return f"SIGKILL {kills}: {who} {death.blow.where}"


def print_result(console: Console, result: Result) -> None:
    """The table, and the verdict in one sentence."""
    table = Table(title="by what was published, and in the database")
    table.add_column("")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    for what, expected, found in rows_of(result.expected, result.found, result.verdict):
        table.add_row(what, expected, found, style="" if expected == found else "bold red")
    table.add_section()
    kills, wanted = len(result.kills), result.settings.kills
    table.add_row("workers killed", f"{wanted:,}", f"{kills:,}", style="" if kills >= wanted else "bold red")
    console.print(table)
    seen = ", ".join(f"{words}: {result.tallies[tally]:,}" for tally, words in _WORDS.items())
    console.print(Text(f"What the workers say: {seen}."), soft_wrap=True)
    complaints = result.complaints
    if complaints:
        console.print(Text(f"NOT AS IT MUST BE: {'; '.join(complaints)}.", style="bold red"), soft_wrap=True)
        return
    console.print(
        Text(
            f"Each of {result.expected.events:,} events was dealt with exactly once: nothing lost, nothing doubled in "
            f"{result.expected.deliveries:,} deliveries and {kills:,} SIGKILLs, in {result.seconds:.1f} seconds.",
            style="bold green",
        ),
        soft_wrap=True,
    )
