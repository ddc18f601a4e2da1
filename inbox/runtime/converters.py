"""From parsed JSON to what the annotations of dataclasses say, strictly.

What is taken for what:

| annotation | JSON |
|---|---|
| `bool`, `str`, `None` | true and false, a text, null |
| `int` | an integer of any length; no 1.0, no "1", no true |
| `float` | a number that is finite as one |
| `Decimal` | a number, or a text that is one, exact either way; at most 1,000 digits before or behind the point |
| `datetime`, `date` | an RFC 3339 date-time with its offset, a full-date |
| `UUID`, `bytes` | its 36 characters; base64 with padding (RFC 4648, 4), as CloudEvents and protobuf write octets |
| `Enum`, `Literal` | one of the values, which are texts, integers, true, false or null |
| `list[T]`, `tuple[T, ...]`, `tuple[A, B]` | a list, of just so many where a number is given |
| `dict[str, T]` | an object |
| a dataclass | an object; see below |
| a union | what the first of them takes, in the order in which they are written |
| `Any`, `object` | whatever it is, as `Event.json` gives it |

Of a dataclass each field that its `__init__` takes is read from the member of its name, or of the camelCase form of
it: `job_id` from `job_id` or `jobId`, `from_` from `from_` or `from`; not both. `field(metadata={"name": "Job-ID"})`
names the one member that is meant instead. Members that no field asks for are ignored, so that producers may add some;
a field without a default must be there. What `__post_init__` raises refuses the data.

In a union nothing is tried twice: at most one of its types takes a list, and at most one an object, unless these are
dataclasses told apart by a field of `Literal`s that they share. Otherwise a nested payload could be made whose decoding
takes time exponential in its length.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from enum import Enum
from types import NoneType
from typing import Any

from inbox.config import require
from inbox.errors import ConfigurationError
from inbox.runtime.annotations import resolved, shown
from inbox.runtime.scalars import SCALARS, Converter, Field, Mismatch, choice_of, unlike, whole_text

_CHOICE_KINDS = (NoneType, bool, int, str)
_INNER_GAP = re.compile(r"(?<=[^_])_+([^_])")

# What stands alone, as what it means.
_BARE: list[tuple[object, Any]] = [
    (list, list[Any]),
    (tuple, tuple[Any, ...]),
    (dict, dict[str, Any]),
    (typing.List, list[Any]),  # noqa: UP006 - as users write it
    (typing.Tuple, tuple[Any, ...]),  # noqa: UP006
    (typing.Dict, dict[str, Any]),  # noqa: UP006
]


def converter_of(kind: type, subject: str) -> Converter:
    """What makes a dataclass of a parsed JSON object. Compiled here, once.

    Args:
        kind: the dataclass.
        subject: whom it is for, as messages begin.

    Raises:
        ConfigurationError: a field's annotation stands for nothing that JSON has, or cannot be found while the program
            runs; two fields would be read from one member; `__init__` demands what is no field.
    """
    compiler = _Compiler(subject)
    try:
        made = compiler.compile(kind, "")
        compiler.finish()
    except RecursionError:
        raise ConfigurationError(f"{subject}: {kind.__qualname__} holds an alias that stands for itself") from None
    return made


class _Compiler:
    """Makes converters; knows each dataclass that it has met, for they may refer to each other and to themselves."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._classes: dict[type, Converter] = {}
        self._unfinished: list[Callable[[], None]] = []

    def finish(self) -> None:
        """Do what had to wait until the fields of every class were known."""
        for step in self._unfinished:
            step()

    def compile(self, annotation: Any, where: str) -> Converter:
        """The converter for `annotation`, which stands at the field `where`.

        Raises:
            ConfigurationError: as `converter_of` says.
        """
        annotation = next((meant for bare, meant in _BARE if annotation is bare), annotation)
        if isinstance(annotation, typing.NewType):
            return self.compile(annotation.__supertype__, where)
        if type(annotation).__name__ == "TypeAliasType":  # of `type A = ...`, and of typing_extensions
            return self.compile(annotation.__value__, where)
        origin, parameters = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is None and isinstance(annotation, type):
            return self._class(annotation, where)
        if origin is typing.Literal:
            return self._choice([(_value(choice), choice) for choice in parameters], annotation, where)
        if origin in (typing.Union, types.UnionType):
            return self._union([self.compile(parameter, where) for parameter in parameters], where)
        return self._container(origin, parameters, annotation, where)

    def _class(self, kind: type, where: str) -> Converter:
        if kind in SCALARS:
            return SCALARS[kind]
        if issubclass(kind, Enum):
            return self._choice([(member.value, member) for member in kind], kind, where)
        if dataclasses.is_dataclass(kind) and not hasattr(kind, "__pydantic_validator__"):
            return self._dataclass(kind)
        raise self._unsupported(kind, where)

    def _container(self, origin: object, parameters: tuple[Any, ...], annotation: object, where: str) -> Converter:
        if origin is list:
            return _list_of(self.compile(parameters[0], where), list)
        if origin is tuple and parameters[1:] == (...,):
            return _list_of(self.compile(parameters[0], where), tuple)
        if origin is tuple:
            return _tuple_of([self.compile(parameter, where) for parameter in parameters])
        if origin is dict and parameters[0] is str:
            return _dict_of(self.compile(parameters[1], where))
        raise self._unsupported(annotation, where)

    def _choice(self, choices: Sequence[tuple[object, object]], annotation: object, where: str) -> Converter:
        if not all(type(value) in _CHOICE_KINDS for value, _ in choices):
            raise self._unsupported(annotation, where)
        return choice_of({(type(value), value): choice for value, choice in choices})

    # -------------------------------------------------------- dataclasses
    def _dataclass(self, kind: type) -> Converter:
        if kind not in self._classes:
            fields: list[Field] = []
            self._classes[kind] = Converter("an object", frozenset({dict}), _maker(kind, fields), fields=fields)
            fields.extend(self._field(kind, member) for member in _members(kind))
            self._check_members(kind, fields)
        return self._classes[kind]

    def _field(self, kind: type, member: dataclasses.Field[Any]) -> Field:
        where = f"{kind.__qualname__}.{member.name}"
        try:
            annotation = resolved(member.type, _names_for(kind, member))
        except Exception as error:
            raise ConfigurationError(
                f"{self._subject}: the annotation of {where} cannot be read ({type(error).__name__}): what it names "
                "must be found while the program runs, at the top of its module and not under TYPE_CHECKING"
            ) from error
        has_default = not (member.default is member.default_factory is dataclasses.MISSING)
        return Field(member.name, self._keys(member, where), self.compile(annotation, where), not has_default)

    def _keys(self, member: dataclasses.Field[Any], where: str) -> tuple[str, ...]:
        if "name" not in member.metadata:
            return tuple(dict.fromkeys((member.name, _camel_case(member.name))))
        given = member.metadata["name"]
        require(isinstance(given, str), f"{self._subject}: {where}: metadata['name'] names a member: a text")
        return (given,)

    def _check_members(self, kind: type, fields: Sequence[Field]) -> None:
        owners: dict[str, str] = {}
        for field in fields:
            for key in field.keys:
                other = owners.setdefault(key, field.name)
                require(
                    other == field.name,
                    f"{self._subject}: {kind.__qualname__}.{other} and {kind.__qualname__}.{field.name} would both be "
                    f"read from the member {key!r}: name one by field(metadata={{'name': ...}})",
                )
        demanded = ", ".join(_demanded(kind) - {field.name for field in fields})
        require(not demanded, f"{self._subject}: {kind.__qualname__}.__init__ demands {demanded}, which is no field")

    # -------------------------------------------------------- unions
    def _union(self, members: Sequence[Converter], where: str) -> Converter:
        takers: dict[type, list[Converter]] = {}
        for member in members:
            for kind in member.kinds:
                takers.setdefault(kind, []).append(member)
        expected = " or ".join(dict.fromkeys(member.expected for member in members))
        if len(takers.get(list, ())) > 1:
            raise self._ambiguous("a list", where)
        if len(takers.get(dict, ())) > 1:
            self._unfinished.append(lambda: self._tell_apart(takers[dict], where))
        return Converter(expected, frozenset(takers), _first_taker(takers, expected))

    def _tell_apart(self, takers: list[Converter], where: str) -> None:
        """Put in the place of dataclasses what chooses one of them by a field that they share."""
        for field in takers[0].fields:
            tags = [_choices_at(taker, field.keys) for taker in takers]
            chosen = {tag: taker for taker, choices in zip(takers, tags, strict=True) for tag in choices}
            if all(tags) and len(chosen) == sum(map(len, tags)):
                takers[:] = [_chooser(field.keys, choice_of(chosen))]
                return
        raise self._ambiguous("an object", where)

    def _ambiguous(self, kind: str, where: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._subject}: {where}: two types of its union take {kind}; only dataclasses may, where a field of "
            "the same name tells them apart by different Literals"
        )

    def _unsupported(self, annotation: object, where: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._subject}: {where}: {shown(annotation)} cannot be made from JSON; what can: bool, int, float, str, "
            "Decimal, datetime, date, UUID, bytes, None, Any, Literal, an Enum of texts or integers, a dataclass, and "
            "list, tuple, dict[str, ...] and unions of these; or let the whole payload be a pydantic model"
        )


# ------------------------------------------------------------------ what is read from a class
def _members(kind: type) -> list[dataclasses.Field[Any]]:
    """The fields that its `__init__` takes; `ClassVar` and `InitVar` are none."""
    return [member for member in dataclasses.fields(kind) if member.init]


def _names_for(kind: type, member: dataclasses.Field[Any]) -> dict[str, Any]:
    """What the words of a field's annotation mean: in the module of the class that declares it, or in that class."""
    declaring = [base for base in kind.__mro__ if vars(base).get("__dataclass_fields__", {}).get(member.name) is member]
    owner = declaring[-1]
    module = vars(sys.modules[owner.__module__])
    return {kind.__name__: kind, owner.__name__: owner, **vars(owner), **module}


def _demanded(kind: type) -> set[str]:
    """The arguments without which its `__init__` cannot be called."""
    _, *parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]  # of this very class
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {each.name for each in parameters if each.default is each.empty and each.kind not in several}


def _camel_case(name: str) -> str:
    """`jobId` for `job_id`, and `from` for `from_`; a leading underscore stays."""
    return _INNER_GAP.sub(lambda gap: gap[1].upper(), name.rstrip("_"))


def _value(choice: object) -> object:
    return choice.value if isinstance(choice, Enum) else choice


def _choices_at(converter: Converter, keys: tuple[str, ...]) -> Sequence[tuple[type, object]]:
    """The choices of the field that is read from `keys`, where there is one that has some."""
    found = (field.converter.choices for field in converter.fields if field.keys == keys)
    return [*next(found, ())]


# ------------------------------------------------------------------ what runs for each payload
def _maker(kind: type, fields: Sequence[Field]) -> Callable[[Any], object]:
    def convert(value: Any) -> object:
        if type(value) is not dict:
            raise unlike("an object", value)
        arguments = {}
        for field in fields:
            key = _key_in(value, field.keys)
            if key is not None:
                try:
                    arguments[field.name] = field.converter.convert(value[key])
                except Mismatch as mismatch:
                    mismatch.steps.append(f".{key}")
                    raise
            elif field.is_required:
                raise Mismatch(f"expected {field.converter.expected}, got nothing", f".{field.keys[0]}")
        try:
            return kind(**arguments)
        except Exception as error:
            raise Mismatch(f"refused by {kind.__name__} ({type(error).__name__})") from error

    return convert


def _key_in(value: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The one of `keys` that is there."""
    first, other = keys[0], keys[-1]
    if first not in value:
        return other if other in value else None
    if first is not other and other in value:
        raise Mismatch(f"there twice, also as {other}", f".{first}")
    return first


def _step(step: str, converter: Converter, value: Any) -> object:
    try:
        return converter.convert(value)
    except Mismatch as mismatch:
        mismatch.steps.append(step)
        raise


def _list_of(item: Converter, kind: type[list[object] | tuple[object, ...]]) -> Converter:
    def convert(value: Any) -> object:
        if type(value) is not list:
            raise unlike("a list", value)
        made = []
        for each in value:
            try:
                made.append(item.convert(each))
            except Mismatch as mismatch:
                mismatch.steps.append(f"[{len(made)}]")
                raise
        return kind(made)

    return Converter("a list", frozenset({list}), convert)


def _tuple_of(items: Sequence[Converter]) -> Converter:
    expected = f"a list of {len(items)}"

    def convert(value: Any) -> object:
        if type(value) is not list or len(value) != len(items):
            raise unlike(expected, value, {list})
        return tuple(_step(f"[{index}]", items[index], each) for index, each in enumerate(value))

    return Converter(expected, frozenset({list}), convert)


def _dict_of(member: Converter) -> Converter:
    def convert(value: Any) -> object:
        if type(value) is not dict:
            raise unlike("an object", value)
        # The names of its members are what came, so a message tells which of them by number.
        return {
            whole_text(key): _step(f"[member {index}]", member, each) for index, (key, each) in enumerate(value.items())
        }

    return Converter("an object", frozenset({dict}), convert)


def _first_taker(takers: dict[type, list[Converter]], expected: str) -> Callable[[Any], object]:
    def convert(value: Any) -> object:
        candidates = takers.get(type(value), [])
        if len(candidates) == 1:
            return candidates[0].convert(value)  # whose mismatch says where in it
        for candidate in candidates:  # single values: texts or numbers
            try:
                return candidate.convert(value)
            except Mismatch:
                continue
        raise unlike(expected, value, takers)

    return convert


def _chooser(keys: tuple[str, ...], choice: Converter) -> Converter:
    def convert(value: Any) -> object:
        key = _key_in(value, keys)
        if key is None:
            raise Mismatch(f"expected {choice.expected}, got nothing", f".{keys[0]}")
        chosen: Any = _step(f".{key}", choice, value[key])
        return chosen.convert(value)

    return Converter("an object", frozenset({dict}), convert)
