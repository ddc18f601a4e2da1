"""Payloads as models of pydantic 2. Imported only where a handler wants one: pydantic is an extra.

The raw octets are validated, not the parsed JSON. In pydantic's JSON mode a strict model takes the texts that JSON has
for moments, UUIDs and octets, which it refuses where they are Python values; and integers stay exact there, of any
length. How strict a model is remains its own affair (`ConfigDict(strict=True)`): the same class may serve an API, and
one class that means two things is worse than a lenient one.

Two things are looked after here. pydantic's parser takes the last of two equal names and NaN, so the data is parsed
strictly beside it. And it reads a number with a point as a float before it makes a `Decimal` of it: where a model has a
`Decimal` anywhere, a number that would lose digits on that way is refused, for money that changes in silence is worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from inbox.config import require
from inbox.core.event import STRICT_JSON, Event
from inbox.errors import ConfigurationError
from inbox.runtime.payloads import json_object, strict_decoder
from inbox.runtime.scalars import Mismatch, exact_number

# What else pydantic puts into a location: which type of a union it tried.
_TYPE_NAMES = frozenset(
    {"bool", "bytes", "date", "datetime", "decimal", "dict", "float", "int", "list", "none", "str", "uuid"}
)


def decoder_of(kind: type, subject: str) -> Callable[[Event], object]:
    """What makes a `kind` of an event's data; raises `Mismatch`, or `Undecodable` where it is no strict JSON.

    Args:
        kind: a model, or a dataclass of pydantic's.
        subject: whom it is for, as messages begin.

    Raises:
        ConfigurationError: the model cannot be built.
    """
    require(kind is not BaseModel, f"{subject}: BaseModel itself is no payload: annotate with a model made of it")
    try:
        adapter: TypeAdapter[object] = TypeAdapter(kind)
        schema = [*_schemas(adapter.core_schema)]
    except Exception as error:
        raise ConfigurationError(
            f"{subject}: the model {kind.__qualname__} cannot be built ({type(error).__name__}): what its annotations "
            "name must be found while the program runs, at the top of its module and not under TYPE_CHECKING"
        ) from error
    names = frozenset(name for part in schema for name in _names(part)) | _TYPE_NAMES
    has_decimals = any(part.get("type") == "decimal" for part in schema)
    decoder = strict_decoder(_number_kept) if has_decimals else STRICT_JSON

    def decode(event: Event) -> object:
        json_object(event, decoder)
        try:
            return adapter.validate_json(event.data or b"")
        except ValidationError as error:
            # Never the error's own text, or its cause's: it shows what it was given.
            first = error.errors(include_url=False, include_context=False)[0]
            steps = [_step(part, names) for part in reversed(first["loc"])]
            raise Mismatch(f"refused by {kind.__name__} ({first['type']})", *steps) from None
        except Exception as error:
            raise Mismatch(f"refused by {kind.__name__} ({type(error).__name__})") from error

    return decode


def _step(part: str | int, names: frozenset[str]) -> str:
    """One step of a location. A name that is none of the model's came with the payload: it is not told."""
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if part in names else ".*"


def _schemas(schema: object) -> Iterator[Mapping[Any, Any]]:
    """Every part of a core schema. One that pydantic has put off is built by looking into it."""
    if isinstance(schema, Mapping):
        yield schema
        for name, part in schema.items():
            if name not in ("metadata", "serialization"):
                yield from _schemas(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _schemas(part)


def _names(part: Mapping[Any, Any]) -> Iterator[str]:
    """The names that a part of a schema gives: of its fields, of their aliases, of a tagged union's choices."""
    for key in ("fields", "choices"):
        if isinstance(part.get(key), Mapping):
            yield from (name for name in part[key] if isinstance(name, str))
    yield from _texts(part.get("validation_alias"))
    if isinstance(part.get("cls"), type):
        yield part["cls"].__name__
    if part.get("type") == "dataclass-field":
        yield part["name"]


def _texts(alias: object) -> Iterator[str]:
    """An alias is a text, a path of texts and numbers, or a list of these."""
    if isinstance(alias, str):
        yield alias
    elif isinstance(alias, list):
        for part in alias:
            yield from _texts(part)


def _number_kept(text: str) -> float:
    """A JSON number as a float, if that is the very number."""
    number = float(text)
    if exact_number(text) != exact_number(repr(number)):
        raise Mismatch("holds a number with more digits than pydantic keeps for a Decimal: send it as a text")
    return number
