"""What a line of the log says, for programs: the word of the fact that it states, and its fields.

Words and fields are a promise, listed in docs/logging.md; a test reads the calls and compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The attribute of a log record that holds its fact.
ATTRIBUTE: Final = "inbox"

#: What a field may hold. Never an id, a payload, a secret or a text of a peer's.
Value: TypeAlias = "str | int | float | bool | Sequence[str] | Mapping[str, str | int] | None"


def fact(what: str, **fields: Value) -> dict[str, dict[str, Value]]:
    """The `extra=` of a line that states a fact.

    Args:
        what: the fact's word, such as `quarantined`.
        fields: all that docs/logging.md lists for it; None where nobody knows.
    """
    return {ATTRIBUTE: {"what": what, **fields}}
