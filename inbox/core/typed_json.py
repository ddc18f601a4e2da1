"""Headers as JSON that keeps exact values and types, for the quarantine.

A signature may cover a header's bytes, and a replay must publish what was received: `1`, `1.0`, `"1"` and
`b"1"` are four values. Text, integers, booleans and None are JSON's own, so that people can read and search the
column; everything else is an object with the name of its type in `t` and its exact text in `v`:

```json
{"ce-id": "e-1", "n": 1, "rate": {"t": "float", "v": "0x1.8000000000000p+0"}, "raw": {"t": "bytes", "v": "AP8="}}
```

A list or table is written flat, each container as its size before its members
(`{"t": "tree", "v": [{"t": "list", "n": 2}, "a", "b"]}`): a header nested a thousand deep is a legal AMQP value, and
recursion over it would end in an error where nothing may be dropped.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

__all__ = ["Opaque", "dump_headers", "load_headers"]


class Opaque(str):
    """A value of a type that cannot be kept exactly; the text is what `repr` made of it."""

    __slots__ = ()


def _base64(value: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(value).decode("ascii")


#: Name, type, exact text of a value, and back. The first type that fits is taken.
_SCALARS: Final[tuple[tuple[str, type, Callable[[Any], str], Callable[[str], object]], ...]] = (
    ("opaque", Opaque, str, Opaque),
    ("bytes", bytes, _base64, base64.b64decode),
    ("bytearray", bytearray, _base64, lambda text: bytearray(base64.b64decode(text))),
    ("bytes", memoryview, _base64, base64.b64decode),
    # Hexadecimal is exact and spells NaN and the infinities, which JSON has not (RFC 8259, 6).
    ("float", float, float.hex, float.fromhex),
    ("decimal", Decimal, str, Decimal),
    ("datetime", datetime, datetime.isoformat, datetime.fromisoformat),
)
_LOADERS: Final = {name: load for name, _, _, load in _SCALARS}
_CONTAINERS: Final = ("list", "dict")


def dump_headers(headers: Mapping[str, object]) -> bytes:
    """Write `headers` as ASCII JSON; the same headers in the same order give the same bytes.

    Args:
        headers: names and values, of the types that AMQP's tables have (str, bytes, bytearray, int, float, bool,
            Decimal, datetime, None, list, dict) and tuple, which is read back as a list. A value of another type
            is kept as `Opaque`.
    """
    members = {name: _dump(value) for name, value in headers.items()}
    return json.dumps(members, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def load_headers(stored: bytes) -> dict[str, object]:
    """Read what `dump_headers` wrote: equal values of the same types.

    Raises:
        ValueError: it was not written by `dump_headers`.
    """
    try:
        members = json.loads(stored)
        if not isinstance(members, dict):
            raise ValueError("stored headers are no object")  # noqa: TRY004 - a value from the database, not an argument
        return {name: _load(value) for name, value in members.items()}
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        # An import reads what anyone may have written.
        raise ValueError("stored headers were not written by this framework") from error


def _dump(value: object) -> object:
    if isinstance(value, (list, tuple, Mapping)):
        return {"t": "tree", "v": _flatten(value)}
    return _dump_scalar(value)


def _dump_scalar(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str) and not isinstance(value, Opaque):
        return value
    for name, kind, dump, _ in _SCALARS:
        if isinstance(value, kind):
            return {"t": name, "v": dump(value)}
    return {"t": "opaque", "v": repr(value)}


def _flatten(value: object) -> list[object]:
    """The container before its members, depth first; of a dict each key before its value."""
    flat: list[object] = []
    pending: list[object] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            flat.append({"t": "dict", "n": len(item)})
            pending.extend(reversed([part for pair in item.items() for part in pair]))
        elif isinstance(item, (list, tuple)):
            flat.append({"t": "list", "n": len(item)})
            pending.extend(reversed(item))
        else:
            flat.append(_dump_scalar(item))
    return flat


def _load(stored: object) -> object:
    if not isinstance(stored, dict):
        return stored
    kind, value = stored.get("t"), stored.get("v")
    if kind == "tree" and isinstance(value, list):
        return _unflatten(value)
    if kind not in _LOADERS or not isinstance(value, str):
        raise ValueError("stored headers have a value of an unknown type")
    return _LOADERS[kind](value)


def _unflatten(flat: list[object]) -> object:
    """Built from the end: when a container is met, its members lie ready, the first on top."""
    ready: list[object] = []
    for item in reversed(flat):
        kind = item.get("t") if isinstance(item, dict) else None
        if not isinstance(item, dict) or kind not in _CONTAINERS:
            ready.append(_load(item))
        elif kind == "list":
            ready.append(_pop(ready, item["n"]))
        else:
            parts = _pop(ready, 2 * item["n"])
            ready.append(dict(zip(parts[::2], parts[1::2], strict=True)))
    (whole,) = ready
    return whole


def _pop(ready: list[object], count: int) -> list[object]:
    return [ready.pop() for _ in range(count)]
