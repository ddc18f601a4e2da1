"""Payloads as handlers want to see them: the event's data as a dataclass, or as a pydantic model.

A handler says by annotation what it wants. The data is decoded for each run, after verification and before anything is
begun; what does not fit is refused as `invalid-payload`, and the refusal names the field and what was
expected there, never what stood there.

pydantic is never imported here: a model brings it along. A class that has `__inbox_payload__`, a class method that
takes the event, makes its objects itself: for payloads that are more than their JSON says.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from inbox.core.event import STRICT_JSON
from inbox.core.media_types import parse_media_type
from inbox.errors import Refused, Undecodable
from inbox.runtime.converters import converter_of
from inbox.runtime.scalars import Mismatch, exact_number, word_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from inbox.core.event import Event

_OWN = "__inbox_payload__"
_LONGEST_PATH = 200  # characters; the quarantine keeps 1024 of a detail


def is_payload_class(annotation: object) -> bool:
    """Whether data can be decoded as `annotation`: it decodes itself, is a dataclass, or a model of pydantic 2."""
    return isinstance(annotation, type) and (
        hasattr(annotation, _OWN) or dataclasses.is_dataclass(annotation) or is_model(annotation)
    )


def is_model(annotation: type) -> bool:
    """Whether it is a model or a dataclass of pydantic 2. Its own mark says so: nothing needs to be imported."""
    return hasattr(annotation, "__pydantic_validator__")


def decoder_of(kind: type, subject: str) -> Callable[[Event], object]:
    """What makes a `kind` of an event's data. Compiled here, once.

    Args:
        kind: a payload class.
        subject: whom it is for, as messages begin.

    Returns:
        A function that raises `Refused` for data that does not fit: `invalid-payload`, or `bad-json`.

    Raises:
        ConfigurationError: an annotation in it stands for nothing that JSON has. The message names the field.
    """
    if hasattr(kind, _OWN):
        decode = _own_decoder(kind)
    elif is_model(kind):
        from inbox.runtime import models  # noqa: PLC0415 - it imports pydantic, which a model only brings along

        decode = models.decoder_of(kind, subject)
    else:
        decode = _dataclass_decoder(kind, subject)

    def checked(event: Event) -> object:
        try:
            return decode(event)
        except Mismatch as mismatch:
            raise _refusal(mismatch) from mismatch.__cause__
        except RecursionError:
            raise _refusal(Mismatch("nested too deeply")) from None

    return checked


def json_object(event: Event, decoder: json.JSONDecoder) -> dict[str, Any]:
    """The JSON object that an event's data is.

    Data without a content type is tried: the JSON format of CloudEvents (1.0, 3.1.2) says of its events that they are
    then to be read "as if it were set to application/json".

    Raises:
        Mismatch: there is no data, its content type says that it is something else, or it is another kind of JSON.
        Undecodable: `bad-json`: it is no strict JSON.
    """
    declared = event.cloudevent.datacontenttype
    if event.data is None:
        raise Mismatch("expected a JSON object, got an event without data")
    if declared is not None and not parse_media_type(declared).is_json:
        raise Mismatch("expected a JSON object, got data of another content type")
    try:
        parsed = decoder.decode(event.data.decode("utf-8", "strict"))
    except (ValueError, RecursionError) as error:
        raise Undecodable("the data is not strict JSON", code="bad-json") from error
    if not isinstance(parsed, dict):
        raise Mismatch(f"expected an object, got {word_for(parsed)}")
    return parsed


def strict_decoder(parse_float: Callable[[str], Any]) -> json.JSONDecoder:
    """As strict as `inbox.core.event.STRICT_JSON`, with another way to read a number that is no integer."""
    return json.JSONDecoder(
        parse_float=parse_float,
        parse_constant=STRICT_JSON.parse_constant,
        object_pairs_hook=STRICT_JSON.object_pairs_hook,
    )


def _own_decoder(kind: type) -> Callable[[Event], object]:
    make = getattr(kind, _OWN)

    def decode(event: Event) -> object:
        try:
            return make(event)
        except (Refused, RecursionError):
            raise
        except Exception as error:
            raise Mismatch(f"refused by {kind.__name__} ({type(error).__name__})") from error

    return decode


def _dataclass_decoder(kind: type, subject: str) -> Callable[[Event], object]:
    convert = converter_of(kind, subject).convert
    decoder = strict_decoder(exact_number)

    def decode(event: Event) -> object:
        return convert(json_object(event, decoder))

    return decode


def _refusal(mismatch: Mismatch) -> Refused:
    path = f"data{mismatch.path}"
    if len(path) > _LONGEST_PATH:
        half = _LONGEST_PATH // 2
        path = f"{path[:half]}…{path[-half:]}"
    return Refused(f"{path}: {mismatch.said}", code="invalid-payload")
