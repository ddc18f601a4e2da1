"""`inbox fetcher pending`: jobs that have ended, and whose event has not been applied."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from inbox.cli.option_groups import grouped
from inbox.cli.options import (
    ATTENTION,
    OK,
    JsonOption,
    Place,
    ProgressOption,
    TargetArgument,
    Where,
    choose_place,
    explaining,
    interruptible,
    open_store,
    print_json,
    progress,
    run,
)
from inbox.core.quarantine import QuarantineState, Selection
from inbox.core.records import InboxRecord
from inbox.errors import ConfigurationError
from inbox.fetcher.pending import AUTHORIZATION_VARIABLE, ApiUnavailable, JobsApi, JobState, read_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inbox.cli.options import Interruption, Progress
    from inbox.ports import Store

_COMMAND: Final = "fetcher pending"
#: Questions in a row without an answer, after which no more are asked; and those at the beginning, after which it seems
#: that nobody is there.
_SILENT: Final = 20
_ABSENT: Final = 3

IdsOption = Annotated[
    str, typer.Option("--ids", metavar="FILE", help="Job ids, one a line; - is standard input.", show_default=False)
]
ApiOption = Annotated[
    str,
    typer.Option(
        "--api",
        envvar="FETCHER_API_URL",
        metavar="URL",
        help="The provider's REST API, up to and without /v1/fetcher.",
        show_default=False,
        show_envvar=True,
    ),
]
ConcurrencyOption = Annotated[int, typer.Option("--concurrency", min=1, max=64, help="Questions at once.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, max=600.0, help="Seconds without a sign of life until one has failed.")
]
TriesOption = Annotated[int, typer.Option("--tries", min=1, max=10, help="Of one question, the first included.")]


@grouped
def pending(
    context: typer.Context,
    *,
    target: TargetArgument = None,
    where: Where,
    ids: IdsOption,
    api: ApiOption,
    concurrency: ConcurrencyOption = 4,
    timeout: TimeoutOption = 10.0,
    tries: TriesOption = 4,
    as_json: JsonOption = False,
    show_progress: ProgressOption = None,
) -> None:
    """List jobs that have ended and whose event this consumer has not applied. It changes and applies nothing.

    Each job is looked up by GET /v1/fetcher/ID; where it has ended, the inbox is asked for the event that there must
    have been. An event may be on its way: look again after some minutes before you act. What is in quarantine is listed
    with the reason, for it is not applied either.

    What the header Authorization must hold is read from FETCHER_API_AUTHORIZATION, e.g. "Bearer …", and from nowhere
    else. Busy servers (429) and failing ones are asked again, after as long as they say.

    Example: inbox fetcher pending billing.app:inbox --ids open-jobs.txt --api https://fetcher.internal

    Example: inbox fetcher pending billing.app:inbox --ids - --api https://fetcher.internal --json < open-jobs.txt

    **--json** prints `pending` (each `job_id`, `status`, `event_id`, `completed_at`, and `quarantined`, which is the
    reason or null), `unknown` (ids that the provider does not know), `not_asked` (each `job_id` and `why`), and the
    numbers `answered`, `applied` and `running`.

    Exit codes: 0 nothing is pending; 1 something is, is unknown to the provider, or could not be asked, as after
    Ctrl-C; 2 a wrong option, no connection, or no right to ask; 130 interrupted twice.
    """
    with explaining(_COMMAND):
        place = choose_place(context, target, where)
        if place.inbox is not None and place.inbox.settings.identity != "id":
            raise ConfigurationError(
                "the consumer knows its events by source and id, and the provider tells no source: only consumers with "
                "identity='id' can be asked, as job_event_settings makes them"
            )
        wanted = read_ids(_lines_of(ids))
        link = JobsApi(api, authorization=os.environ.get(AUTHORIZATION_VARIABLE) or None, timeout=timeout, tries=tries)
    survey = Survey(link, place, wanted)
    run(_COMMAND, lambda: survey.make(concurrency, shown=show_progress))
    if as_json:
        print_json(survey.as_dict())
    else:
        survey.tell()
    raise typer.Exit(OK if survey.is_quiet else ATTENTION)


def _lines_of(name: str) -> list[str]:
    """Every line.

    Raises:
        ConfigurationError: it is not text.
        OSError: it cannot be read.
    """
    try:
        if name == "-":
            return [*sys.stdin]
        with Path(name).open(encoding="utf-8") as file:
            return [*file]
    except UnicodeDecodeError:
        raise ConfigurationError(f"{name}: not text in UTF-8") from None


@dataclass(frozen=True, slots=True)
class Pending:
    """A job that has ended, and whose event has not been applied.

    Attributes:
        state: what the provider says of it.
        quarantined: why something of that id is in quarantine; None where nothing is. It need not be the event itself:
            a forgery may have its id.
    """

    state: JobState
    quarantined: str | None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "job_id": self.state.job_id,
            "status": self.state.ended,
            "event_id": self.state.event_id,
            "completed_at": self.state.completed_at,
            "quarantined": self.quarantined,
        }


@dataclass(slots=True)
class Survey:
    """What was asked, and what came of it.

    Attributes:
        api: whom to ask about jobs.
        place: where the inbox is.
        wanted: ids of jobs.
        pending: in the order in which they were found.
        unknown: ids that the provider does not know.
        not_asked: ids without an answer, with the reason.
        applied, running: how many jobs' events were applied, and how many jobs have not ended.
    """

    api: JobsApi
    place: Place
    wanted: list[str]
    pending: list[Pending] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)
    applied: int = 0
    running: int = 0
    _silent: int = 0
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def make(self, concurrency: int, *, shown: bool | None) -> None:
        """Ask about every job, until somebody interrupts.

        Raises:
            ApiUnavailable: nobody answers.
            ApiRefused: whoever asks has no right to.
            StartupError, Contended, StoreUnavailable: the inbox cannot be asked.
        """
        left = iter(self.wanted)
        bar = progress(_COMMAND, "jobs asked about", total=len(self.wanted), shown=shown)
        with interruptible() as interruption, bar as shown_bar:
            async with open_store(self.place) as store, self.api:
                asking = _Asking(left, store, shown_bar, interruption)
                await self._begin(asking)
                workers = [asyncio.ensure_future(self._work(asking)) for _ in range(concurrency)]
                try:
                    await asyncio.gather(*workers)
                finally:
                    for worker in workers:
                        worker.cancel()
                    await asyncio.gather(*workers, return_exceptions=True)
        self.not_asked |= dict.fromkeys(left, "not asked any more")

    async def _begin(self, asking: _Asking) -> None:
        """Ask until the first answer, one after the other: where nobody is, many would wait in vain."""
        for job_id in asking.left:
            error = await self._look_at(job_id, asking)
            if error is None or asking.interruption.is_asked:
                return
            if self._silent >= min(_ABSENT, len(self.wanted)):
                raise error

    async def _work(self, asking: _Asking) -> None:
        for job_id in asking.left:
            await self._look_at(job_id, asking)
            if asking.interruption.is_asked or self._silent >= _SILENT:
                return

    async def _look_at(self, job_id: str, asking: _Asking) -> ApiUnavailable | None:
        try:
            state = await self.api.state(job_id)
        except ApiUnavailable as error:
            self._silent += 1
            self.not_asked[job_id] = str(error)
            return error
        finally:
            asking.bar.advance()
        self._silent = 0
        if state is None:
            self.unknown.append(job_id)
        elif state.event_id is None:
            self.running += 1
        else:
            await self._look_for(state, state.event_id, asking.store)
        return None

    async def _look_for(self, state: JobState, event_id: str, store: Store) -> None:
        """The inbox is asked after the provider: what was applied between the two questions counts."""
        assert self.place.consumer is not None  # noqa: S101 - `choose_place` demands one
        async with self._looking:  # over one connection
            if await store.knows(InboxRecord(self.place.consumer, event_id.encode())):
                self.applied += 1
                return
            selection = Selection(states=tuple(QuarantineState), ids=(event_id,))
            entries = await store.desk.list(selection, limit=1, newest_first=True)
        self.pending.append(Pending(state, entries[0].reason if entries else None))

    @property
    def answered(self) -> int:
        """Jobs that the provider said something of, be it that it knows none."""
        return self.applied + self.running + len(self.pending) + len(self.unknown)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody needs to look: each job was asked about, and what has ended was applied."""
        return not (self.pending or self.unknown or self.not_asked)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "pending": [each.as_dict() for each in self.pending],
            "unknown": self.unknown,
            "not_asked": [{"job_id": job_id, "why": why} for job_id, why in self.not_asked.items()],
            "answered": self.answered,
            "applied": self.applied,
            "running": self.running,
        }

    def tell(self) -> None:
        """For people: a line for each job that somebody should look at, and one about all."""
        for each in self.pending:
            where = "not seen" if each.quarantined is None else f"in quarantine: {each.quarantined}"
            moment = each.state.completed_at or "time not told"
            typer.echo(f"{each.state.job_id}  {each.state.ended}  {moment}  {where}")
        for job_id in self.unknown:
            typer.echo(f"{job_id}  unknown to the provider")
        for job_id, why in self.not_asked.items():
            typer.echo(f"{job_id}  {why}")
        typer.echo(
            f"{len(self.pending):,} pending, {self.applied:,} applied, {self.running:,} not ended, "
            f"{len(self.unknown):,} unknown, {len(self.not_asked):,} without an answer.",
            err=True,
        )


@dataclass(frozen=True, slots=True)
class _Asking:
    """What those who ask have in common."""

    left: Iterator[str]
    store: Store
    bar: Progress
    interruption: Interruption
