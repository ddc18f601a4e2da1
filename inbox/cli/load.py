"""Finding the `Inbox` that a command line names."""

from __future__ import annotations

import importlib
import importlib.util
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
    module_name, attribute = _split(target)
    _search_here_first()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that theirs imports: the traceback is what they need
        raise _no_module(module_name) from None
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigurationError(f"module {module_name!r} has no {attribute!r}")
    if callable(found) and not isinstance(found, Inbox):
        _require_no_arguments(found, target)
        found = found()
    if not isinstance(found, Inbox):
        raise ConfigurationError(f"{target!r} is a {type(found).__name__}, not an Inbox")
    return found


def folders_of(target: str) -> list[Path]:
    """The folders of the outermost package that `target` is in; that of its file where it is in none.

    Nothing of it is imported.

    Args:
        target: as `load_inbox` takes it.

    Raises:
        ConfigurationError: no such package, or one without files of its own.
    """
    module_name, _ = _split(target)
    outermost = module_name.partition(".")[0]
    _search_here_first()
    try:
        spec = importlib.util.find_spec(outermost)
    except ValueError:  # `__main__`, which has no spec
        spec = None
    if spec is None:
        raise _no_module(module_name)
    if spec.submodule_search_locations is not None:
        return [Path(folder) for folder in spec.submodule_search_locations]
    if spec.origin is None or not spec.has_location:
        raise ConfigurationError(f"module {outermost!r} is part of Python, and has no files of yours")
    return [Path(spec.origin).parent]


def _split(target: str) -> tuple[str, str]:
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise ConfigurationError(f"{target!r} names no Inbox; write module:attribute, such as billing.app:inbox")
    return module_name, attribute


def _search_here_first() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _no_module(name: str) -> ConfigurationError:
    return ConfigurationError(f"no module {name!r} here or on the path; run from your project's root")


def _require_no_arguments(function: Callable[..., object], target: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise ConfigurationError(f"{target!r} must take no arguments and return an Inbox, or be one") from None
