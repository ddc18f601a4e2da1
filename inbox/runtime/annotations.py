"""Annotations, as they are written and as they are meant."""

from __future__ import annotations

import typing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def resolved(annotation: object, names: Mapping[str, Any]) -> Any:
    """The type that `annotation` stands for, also where it is a text; without what `Annotated` adds.

    Args:
        annotation: as it was written.
        names: what its words mean: mostly the globals of the module in which it was written.

    Raises:
        Exception: whatever evaluating it raises; mostly `NameError`.
    """
    owner = SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(owner, dict(names))["it"]


def last_word(annotation: str) -> str:
    """The class that a text names, with or without its module."""
    return annotation.rsplit(".", 1)[-1]


def shown(annotation: object) -> str:
    """An annotation as a person would write it, for messages."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
