"""Which entries a command of `inbox quarantine` means: its options, and the selection that they make."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from inbox.cli.prune import seconds_of
from inbox.core.quarantine import QuarantineState, Selection
from inbox.errors import ConfigurationError


class StateName(StrEnum):
    """What `--state` takes."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    ALL = "all"


StateOption = Annotated[
    list[StateName] | None,
    typer.Option("--state", help="What was decided; open where it is not given. May be repeated.", show_default=False),
]
ReasonOption = Annotated[
    list[str] | None,
    typer.Option("--reason", metavar="WORD", help="Why they were refused, such as handler-error. May be repeated."),
]
TypeOption = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="CloudEvents type. May be repeated.")
]
IdOption = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Id of the event. May be repeated.")]
DigestOption = Annotated[
    list[str] | None,
    typer.Option("--digest", metavar="HEX", help="First digits of the digest that `list` shows. May be repeated."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Refused for the first time then or later: 2026-01-31, 2026-01-31T12:00 (UTC), or 90s, 15m, 12h, 30d ago.",
    ),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Refused for the first time before then.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All that are open; stands where no filter does.")]


@dataclass(frozen=True, slots=True)
class Which:
    """The options that say which entries; see `inbox.cli.option_groups`."""

    reason: ReasonOption = None
    type_: TypeOption = None
    id_: IdOption = None
    digest: DigestOption = None
    since: SinceOption = None
    until: UntilOption = None


@dataclass(frozen=True, slots=True)
class Filters:
    """What the options say, as far as that can be said without asking the database for its time.

    Raises:
        ConfigurationError: a digest or a time cannot be read.
    """

    states: tuple[StateName, ...] = ()
    reasons: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        self.selection(datetime.now(UTC))

    @property
    def is_given(self) -> bool:
        """Whether anything but a state was asked for."""
        return bool(self.reasons or self.types or self.ids or self.digests or self.since or self.until)

    def selection(self, now: datetime) -> Selection:
        """The selection, at this time by the database's clock."""
        wanted: tuple[str, ...] = self.states or (StateName.OPEN,)
        states = tuple(QuarantineState) if StateName.ALL in wanted else tuple(map(QuarantineState, wanted))
        return Selection(
            states=states,
            reasons=self.reasons,
            types=self.types,
            ids=self.ids,
            digests=self.digests,
            since=_time("--since", self.since, now),
            until=_time("--until", self.until, now),
        )


def make_filters(which: Which, states: list[StateName] | None = None) -> Filters:
    """The filters, as typer hands the options over.

    Raises:
        ConfigurationError: a digest or a time cannot be read.
    """
    return Filters(
        states=tuple(states or ()),
        reasons=tuple(which.reason or ()),
        types=tuple(which.type_ or ()),
        ids=tuple(which.id_ or ()),
        digests=tuple(which.digest or ()),
        since=which.since,
        until=which.until,
    )


def require_filter(filters: Filters, *, everything: bool) -> None:
    """Ask for one of both, for what cannot be taken back.

    Raises:
        ConfigurationError: neither a filter nor `--all` is given, or both are.
    """
    if everything == filters.is_given:
        raise ConfigurationError("say which: --reason, --type, --id, --digest, --since or --until; or else --all")


def _time(option: str, text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - timedelta(seconds=seconds_of(option, text))
        except (ConfigurationError, OverflowError):
            raise ConfigurationError(
                f"{option} {text!r} is no time: write 2026-01-31, 2026-01-31T12:00+01:00 (UTC without a zone), or 12h "
                "for twelve hours ago"
            ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
