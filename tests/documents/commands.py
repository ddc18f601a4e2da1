"""`docs/reference/commands.md`: each command with its arguments and options, as typer knows them."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from inbox.cli.main import app
from tests.documents.docstrings import WRITTEN, fenced, table

_INTRODUCTION = """
`pip install 'idempotent-inbox[cli]'` brings the command `inbox`; `python -m inbox` is the same. Each says all of this
with `--help`. TARGET is your Inbox, or a function that makes it, as `module:attribute`; the current directory is
searched first.
"""


@dataclass(frozen=True)
class Parameter:
    """One argument or option of a command."""

    names: tuple[str, ...]
    info: OptionInfo | ArgumentInfo
    kind: Any
    default: object

    @property
    def is_option(self) -> bool:
        return isinstance(self.info, OptionInfo)


@dataclass(frozen=True)
class Command:
    """One command, such as `inbox schema apply`."""

    name: str
    function: Callable[..., Any]

    @property
    def parameters(self) -> Iterator[Parameter]:
        kinds = get_type_hints(self.function, include_extras=True)
        for name, parameter in inspect.signature(self.function).parameters.items():
            if get_origin(kinds[name]) is Annotated:
                kind, info = get_args(kinds[name])
                names = (*([info.default] if isinstance(info.default, str) else []), *(info.param_decls or ()))
                names = names or (f"--{name.replace('_', '-')}",)
                default = None if parameter.default is inspect.Parameter.empty else parameter.default
                is_required = parameter.default is inspect.Parameter.empty
                yield Parameter(names, info, kind, Ellipsis if is_required else default)


def page() -> str:
    lines = [WRITTEN, "# Commands", *_INTRODUCTION.splitlines(), ""]
    for name, group in _top():
        if isinstance(group, Command):
            lines += _of_command(group, "##")
            continue
        lines += [f"## inbox {name}", "", _text(str(group.info.help)), ""]
        for command in _commands(group, f"inbox {name}"):
            lines += _of_command(command, "###")
    return "\n".join(lines).rstrip() + "\n"


def environment() -> Iterator[tuple[str, str, str]]:
    """Variables that stand for options: their name, the option, the commands that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for command in every_command():
        for parameter in command.parameters:
            if parameter.info.envvar:
                found.setdefault((str(parameter.info.envvar), parameter.names[0]), []).append(command.name)
    for (variable, option), names in sorted(found.items()):
        yield f"`{variable}`", f"`{option}`", ", ".join(f"`{name}`" for name in names)


def every_command() -> Iterator[Command]:
    for name, group in _top():
        if isinstance(group, Command):
            yield group
        else:
            yield from _commands(group, f"inbox {name}")


def _top() -> list[tuple[str, Command | typer.Typer]]:
    found: dict[str, Command | typer.Typer] = {
        command.name.removeprefix("inbox "): command for command in _commands(app, "inbox")
    }
    for group in app.registered_groups:
        assert group.typer_instance is not None
        found[str(group.typer_instance.info.name)] = group.typer_instance
    whole: Any = typer.main.get_command(app)
    return [(name, found[name]) for name in whole.list_commands(None)]


def _commands(group: typer.Typer, path: str) -> Iterator[Command]:
    for info in group.registered_commands:
        assert info.callback is not None
        yield Command(f"{path} {info.name or info.callback.__name__.replace('_', '-')}", info.callback)


def _of_command(command: Command, level: str) -> Iterator[str]:
    parameters = [*command.parameters]
    arguments = [_usage(parameter) for parameter in parameters if not parameter.is_option]
    yield from (f"{level} {command.name}", "")
    yield from ("```text", " ".join([command.name, *arguments, "[OPTIONS]"]), "```", "")
    yield from (_text(inspect.getdoc(command.function) or ""), "")
    rows = [(_shown(parameter), _said(parameter)) for parameter in parameters]
    if rows:
        yield from table(("argument or option", "what for"), *rows)


def _usage(parameter: Parameter) -> str:
    name = str(parameter.info.metavar)
    return name if parameter.default is Ellipsis else f"[{name}]"


def _shown(parameter: Parameter) -> str:
    if not parameter.is_option:
        return f"`{parameter.info.metavar}`"
    names = [name.replace("/", " / ") for name in parameter.names]
    return f"`{', '.join(names)}{_value(parameter)}`"


def _value(parameter: Parameter) -> str:
    kind = _inner(parameter.kind)
    if kind is bool:
        return ""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f" {parameter.info.metavar or 'WORD'}"
    names = {int: "NUMBER", float: "NUMBER"}
    return f" {parameter.info.metavar or names.get(kind, 'TEXT')}"


def _inner(kind: Any) -> Any:
    """`X` of `X | None` and of `list[X]`."""
    while get_args(kind):
        kind = next(argument for argument in get_args(kind) if argument is not type(None))
    return kind


def _said(parameter: Parameter) -> str:
    info, default = parameter.info, parameter.default
    said = [str(info.help or "")]
    kind = _inner(parameter.kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        said.append(f"One of {', '.join(f'`{member.value}`' for member in kind)}.")
    if default is Ellipsis and parameter.is_option:
        said.append("Must be given.")
    if not (default is Ellipsis or default is None or isinstance(default, bool)):
        said.append(f"Default: `{default.value if isinstance(default, Enum) else default}`.")
    if info.min is not None and info.max is not None:
        said.append(f"From {info.min} to {info.max}.")
    elif info.min is not None:
        said.append(f"At least {info.min}.")
    if info.envvar:
        said.append(f"Variable: `{info.envvar}`.")
    return " ".join(_plain(each) for each in said if each)


def _plain(text: str) -> str:
    """Help as text: names of options as code, or Markdown would make a dash of `--`."""
    return re.sub(r"(?<![`\w-])(--[a-z][a-z-]*)(?![\w`])", r"`\1`", text)


def _text(docstring: str) -> str:
    """Help as Markdown: its examples are blocks that the tests read, and its exit codes stand out."""
    paragraphs = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        words = " ".join(paragraph.split())
        example = re.fullmatch(r"(Example[^:]*): (.*)", words)
        if example:
            paragraphs.append(f"{example.group(1)}:\n\n```sh\n{example.group(2)}\n```")
        elif paragraph.startswith("    "):
            paragraphs.append(fenced(paragraph))
        else:
            paragraphs.append(re.sub(r"^(Exit codes|Environment):", r"**\1:**", _plain(words)))
    return "\n\n".join(paragraphs)
