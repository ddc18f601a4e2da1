"""Lines of a shell as the command `inbox` gets them, and what its own parser says of them."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from inbox.cli.main import app
from tests.documents.markdown import Block

_OPERATORS = re.compile(r"[();<>|&\n]+")


@cache
def _parser() -> Any:
    return typer.main.get_command(app)


def commands_of(block: Block) -> Iterator[tuple[int, list[str]]]:
    """The arguments of each `inbox …` in a block, with its line."""
    text = re.sub(r"\\\n", "  ", block.text)
    for number, line in enumerate(text.splitlines()):
        yield from ((block.line + number, arguments) for arguments in _commands(line))


def _commands(line: str) -> Iterator[list[str]]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.wordchars += ":,[]{}@%+"
    words.commenters = "#"
    command: list[str] | None = None
    for word in words:
        if _OPERATORS.fullmatch(word):
            if command is not None:
                yield command
            command = None
        elif command is not None:
            command.append(word)
        elif word == "inbox":
            command = []
    if command is not None:
        yield command


def refusal(arguments: list[str]) -> str | None:
    """What the command's parser has against these arguments; None where it takes them. Nothing is run.

    Files and folders are a reader's own: that they are not here is nothing against the arguments.
    """
    command = _parser()
    context, name, left = None, "inbox", arguments
    while True:
        if not left and hasattr(command, "resolve_command"):
            return f"{name} needs a command"
        try:
            context = command.make_context(name, [*left], parent=context)
            if not hasattr(command, "resolve_command"):
                return None
            left = [*_set_aside(context), *context.args]
            if not left:
                continue
            name, command, left = command.resolve_command(context, left)
        except Exception as error:
            if getattr(error, "exit_code", None) == 0:  # --help, or --version
                return None
            if not hasattr(error, "format_message"):
                raise
            said = str(error.format_message())
            return None if said.endswith("does not exist.") else said


def _set_aside(context: Any) -> list[str]:
    """Where click keeps the name of a command until it is resolved: it goes by two names in its releases."""
    found = vars(context)
    return list(found.get("_protected_args") or found.get("protected_args") or ())


def unknown(words: list[str]) -> str | None:
    """What is wrong with a mention of a command in the text, whose arguments are left out: its name, or an option.

    `quarantine list|show` mentions two of them.
    """
    command = _parser()
    path = "inbox"
    for word in words:
        if word.startswith("-"):
            name = word.partition("=")[0]
            if name != "--help" and not any(name in (*each.opts, *each.secondary_opts) for each in command.params):
                return f"{path} has no option {name}"
        elif getattr(command, "commands", None):
            names = word.split("|")
            if missing := [name for name in names if name not in command.commands]:
                return f"{path} has no command {missing[0]}"
            path, command = f"{path} {names[0]}", command.commands[names[0]]
    return None
