"""Finding the `Inbox` that a command line names."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

from inbox.app import Inbox
from inbox.errors import ConfigurationError


def load_inbox(target: str) -> Inbox:
    """The `Inbox` at `module:attribute`, or what a function there returns.

    Args:
        target: `package.module:attribute`; the current directory is searched first.

    Raises:
        ConfigurationError: no such module or attribute, or something else than an `Inbox`.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise ConfigurationError(f"{target!r} names no Inbox; write module:attribute, such as billing.app:inbox")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that theirs imports: the traceback is what they need
        raise ConfigurationError(
            f"no module {module_name!r} here or on the path; run from your project's root"
        ) from None
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigurationError(f"module {module_name!r} has no {attribute!r}")
    if callable(found) and not isinstance(found, Inbox):
        _require_no_arguments(found, target)
        found = found()
    if not isinstance(found, Inbox):
        raise ConfigurationError(f"{target!r} is a {type(found).__name__}, not an Inbox")
    return found


def _require_no_arguments(function: Callable[..., object], target: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise ConfigurationError(f"{target!r} must take no arguments and return an Inbox, or be one") from None
