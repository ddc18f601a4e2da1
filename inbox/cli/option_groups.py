"""Options that several commands share, written once: a dataclass whose fields are options.

    @dataclass(frozen=True, slots=True)
    class Where:
        database: DatabaseOption = None
        consumer: ConsumerOption = None

    @app.command("list")
    @grouped
    def list_command(context: typer.Context, *, where: Where, limit: LimitOption = 50) -> None: ...

Typer sees a function that takes `database`, `consumer` and `limit`; the command gets a `Where`.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["grouped"]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command, taking the fields of each group in the place of the group.

    Args:
        command: parameters that are annotated with a dataclass are groups.

    Returns:
        What typer is to be given.

    Raises:
        ValueError: two groups, or a group and the command, have an option of one name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, dict[str, inspect.Parameter]] = {}
    taken: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = _options_of(kind)
            taken += groups[parameter.name].values()
        else:
            taken.append(parameter.replace(annotation=kind))

    @functools.wraps(command)
    def flat(*arguments: Any, **named: Any) -> None:
        made = {
            group: hints[group](**{option: named.pop(option) for option in options})
            for group, options in groups.items()
        }
        command(*arguments, **named, **made)

    # What typer asks for, in the place of what it would find behind `__wrapped__`.
    flat.__signature__ = inspect.Signature(taken, return_annotation=None)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in taken} | {"return": None}
    return flat


def _options_of(group: Any) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return {
        name: parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(group).parameters.items()
    }
