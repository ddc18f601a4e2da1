"""Settings from environment variables: what the variable of each is called, and how its text is read.

One mechanism for every class of settings: the names and types of a dataclass's fields say it all. `deadline` of an area
without a name is `INBOX_DEADLINE`, `delays` of the settings in `retry` is `INBOX_RETRY_DELAYS`. The environment itself
is handed in. Nothing here shows the text of a variable: somebody will put a password into the wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from inbox.errors import ConfigurationError

T = TypeVar("T")

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
#: How alike a name must be to a known one to be taken for a slip: a letter more, less or changed in five.
_ALIKE = 0.8

#: How the names of all settings begin that have an area; a test compares. Which classes are imported must not decide.
_AREAS = ("DATABASE_", "ORBIT_", "RABBITMQ_", "SQLITE_QUEUE_")


@dataclass(frozen=True, slots=True)
class Form:
    """How the text of a variable is read.

    Attributes:
        read: makes the value; raises ValueError for what is none.
        words: what is right, such as `a whole number`.
    """

    read: Callable[[str], object]
    words: str


@dataclass(frozen=True, slots=True)
class Variable:
    """The variable of one setting.

    Attributes:
        name: such as `INBOX_RETRY_DELAYS`.
        path: the setting, such as `retry.delays`.
        form: how it is read; None for what only code can say.
        group: the class of the settings that it makes or leaves out as a whole, such as `TlsSettings`; None for others.
    """

    name: str
    path: str
    form: Form | None
    group: type | None = None


def variables(settings: type, prefix: str) -> Iterator[Variable]:
    """The variable of each setting of a dataclass, in the order of its fields.

    Args:
        settings: the dataclass; a field whose type is another dataclass stands for the fields of that.
        prefix: what all the names begin with, the area included.
    """
    yield from _variables(settings, prefix, "")


def _variables(settings: type, prefix: str, path: str) -> Iterator[Variable]:
    for field, kind in _typed_fields(settings):
        name, inside = prefix + field.name.upper(), path + field.name
        group, is_optional = _group_of(kind)
        if group is None:
            yield Variable(name, inside, _form_of(kind))
            continue
        if is_optional:
            yield Variable(name, inside, _BOOL, group)
        yield from _variables(group, f"{name}_", f"{inside}.")


def read_settings(
    settings: type[T], environ: Mapping[str, str], *, prefix: str, area: str, defaults: Mapping[str, Any]
) -> T:
    """The settings that the environment describes.

    Args:
        settings: the dataclass.
        environ: names and texts; an empty text is as none.
        prefix: what the names of all areas begin with; what begins so and is almost a name of these settings is an
            error.
        area: of these settings, such as `RABBITMQ_`; may be empty.
        defaults: fields that hold where the environment says nothing.

    Raises:
        ConfigurationError: a name is misspelt, a text cannot be read, or the settings refuse it. The message names
            the variables and what is right, never what is in them.
    """
    if not prefix:
        raise ConfigurationError("the prefix of the variables must not be empty: it says which of them are meant")
    given = {name: text.strip() for name, text in environ.items() if text.strip()}
    known = {variable.name: variable for variable in variables(settings, prefix + area)}
    _refuse_slips(given, known, prefix, area)
    read = {variable.path: _value(variable, given[name]) for name, variable in known.items() if name in given}
    try:
        return settings(**{**defaults, **_overrides(settings, read, defaults, "")})
    except ConfigurationError as error:
        names = [variable.name for variable in known.values() if variable.path in read]
        named = [name for name in names if _is_about(str(error), known[name].path)]
        if not names:
            raise
        raise ConfigurationError(f"{error}; the environment sets {', '.join(named or names)}") from error


def _is_about(message: str, path: str) -> bool:
    spaced = "".join(letter if letter.isalnum() or letter in "_." else " " for letter in message)
    return path in (word.strip(".") for word in spaced.split())


def _value(variable: Variable, text: str) -> object:
    if variable.form is None:
        raise ConfigurationError(f"{variable.name} is set, but {variable.path} can be given in code only")
    try:
        return variable.form.read(text)
    except ValueError:
        raise ConfigurationError(f"{variable.name} must be {variable.form.words}") from None


def _overrides(settings: type, read: Mapping[str, object], defaults: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The fields that differ from `defaults`, the settings inside these settings made anew."""
    found: dict[str, Any] = {}
    for field, kind in _typed_fields(settings):
        inside = path + field.name
        group, _ = _group_of(kind)
        if group is None:
            found |= {field.name: read[inside]} if inside in read else {}
            continue
        within = {name: value for name, value in read.items() if name.startswith(f"{inside}.")}
        if not within and inside not in read:
            continue
        if read.get(inside) is False:
            _require_nothing(within, inside)
            found[field.name] = None
            continue
        base = defaults.get(field.name) or _default_of(field) or group()
        found[field.name] = replace(base, **_overrides(group, within, {}, f"{inside}."))
    return found


def _require_nothing(within: Mapping[str, object], path: str) -> None:
    if within:
        raise ConfigurationError(f"{path} is off, which contradicts {' and '.join(within)}")


def _default_of(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _typed_fields(settings: Any) -> Iterator[tuple[Field[Any], Any]]:
    kinds = get_type_hints(settings)
    return ((field, kinds[field.name]) for field in fields(settings))


def _group_of(kind: Any) -> tuple[type | None, bool]:
    """The settings that a field holds, if it holds such, and whether it may hold None instead."""
    inner, is_optional = _without_none(kind)
    return (inner, is_optional) if isinstance(inner, type) and is_dataclass(inner) else (None, is_optional)


def _without_none(kind: Any) -> tuple[Any, bool]:
    """`X` and True for `X | None`; otherwise the type as it is."""
    others = [argument for argument in get_args(kind) if argument is not NoneType]
    is_optional = NoneType in get_args(kind)
    return (others[0], True) if is_optional and len(others) == 1 else (kind, False)


# ------------------------------------------------------------------ how texts are read
def _boolean(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError
    return _WORDS[text.lower()]


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


_BOOL = Form(_boolean, "true or false")
_SIMPLE: dict[object, Form] = {
    int: Form(int, "a whole number"),
    float: Form(_number, "a number, such as 30 or 0.5"),
    bool: _BOOL,
    str: Form(str, "a text"),
}


def _form_of(kind: Any) -> Form | None:
    inner, is_optional = _without_none(kind)
    form = _form_of_value(inner)
    return _or_none(form) if form is not None and is_optional else form


def _form_of_value(kind: Any) -> Form | None:
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return _one_of(arguments)
    if get_origin(kind) is tuple:
        item = _form_of_value(arguments[0])
        return None if item is None else _list_of(item)
    if get_origin(kind) is Mapping:
        value = _form_of_value(arguments[1])
        return None if value is None else _pairs_of(value)
    return _SIMPLE.get(kind)


def _or_none(form: Form) -> Form:
    return Form(lambda text: None if text.lower() == "none" else form.read(text), f"{form.words}, or none")


def _one_of(words: tuple[str, ...]) -> Form:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Form(read, f"one of {', '.join(words)}")


def _list_of(item: Form) -> Form:
    return Form(
        lambda text: tuple(item.read(one.strip()) for one in text.split(",")),
        f"a list with commas, of which each is {item.words}",
    )


def _pairs_of(value: Form) -> Form:
    def read(text: str) -> dict[str, object]:
        pairs: dict[str, object] = {}
        for pair in text.split(","):
            key, equals, said = (part.strip() for part in pair.rpartition("="))
            if not (key and equals) or key in pairs:
                raise ValueError
            pairs[key] = value.read(said)
        return pairs

    return Form(read, f"a list with commas of name=value, each name once, of which each value is {value.words}")


# ------------------------------------------------------------------ slips
def _refuse_slips(given: Iterable[str], known: Collection[str], prefix: str, area: str) -> None:
    bare = [name.removeprefix(prefix) for name in known]
    found = {
        name: _meant(name[len(prefix) :].upper(), bare, area)
        for name in sorted(given)
        if name.upper().startswith(prefix.upper()) and name not in known and _is_ours(name[len(prefix) :].upper(), area)
    }
    slips = [f"{name} is no setting: did you mean {prefix}{meant}?" for name, meant in found.items() if meant]
    if slips:
        raise ConfigurationError(" ".join(slips))


def _is_ours(name: str, area: str) -> bool:
    """Whether `name` may be meant for the settings of `area`: not where it begins as those of another one do.

    Two transports have settings of one name, and nothing tells `ORBIT_RECONNECT_MAX_DELAY` from a slip of the other's.
    """
    return not any(name.startswith(other) for other in _AREAS if other != area)


def _meant(name: str, known: list[str], area: str) -> str | None:
    """The name that `name` is a slip of, all without the prefix; None where it may well be somebody else's.

    Whoever leaves out the area, or the group within it, writes a whole name of a setting, of two words at least.
    """
    if name in known:
        return name
    for one in known:
        if one == area + name or ("_" in name and one.endswith(f"_{name}")):
            return one
    # The area is no part of what must be alike: long areas would make all their names so.
    skipped = len(area) if name.startswith(area) else 0
    plain = {one[skipped:].replace("_", ""): one for one in known}
    close = get_close_matches(name[skipped:].replace("_", ""), [*plain], n=1, cutoff=_ALIKE)
    return plain[close[0]] if close else None
