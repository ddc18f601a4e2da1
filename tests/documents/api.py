"""`docs/reference/api.md`: each public name with its signature and its docstring, read from the source."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import inbox
import inbox.adapters.websocket
import inbox.fetcher
from inbox.config import EnvironmentSettings
from tests.documents.docstrings import SECTIONS, WRITTEN, Docstring, parse

_INTRODUCTION = """
Everything that `from inbox import …` gives, `from inbox.fetcher import …` and `from inbox.adapters.websocket import …`;
nothing else is public: what lies deeper may change with any version.
Settings have a [page of their own](settings.md), and so have [errors](errors.md).
"""

GROUPS: dict[str, tuple[str, ...]] = {
    "A consumer and its handlers": ("Inbox", "InboxService", "handles", "Reject", "Retry", "env"),
    "Events and deliveries": ("Event", "CloudEvent", "Delivery", "Origin", "delivery_from", "Verifier", "Probe"),
    "Servers and files": ("MySQL", "RabbitMQ", "Binding", "SQLite", "SQLiteQueue"),
    "Tables": ("define_tables", "InboxTables", "InboxTablesMixin", "TableNames"),
    "Quarantine": ("Selection", "ReplayReport"),
}
SETTINGS = (
    "Batch",
    "ConsumerSettings",
    "DatabaseSettings",
    "RabbitMQSettings",
    "RetryPolicy",
    "RetryRule",
    "SQLiteQueueSettings",
    "TlsSettings",
)
_LINE = 100


def page() -> str:
    lines = [WRITTEN, "# Python names", *_INTRODUCTION.splitlines(), ""]
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _of_name(name)
    lines += ["## Job events of Fetcher", "", "From `inbox.fetcher`; what they are for: [Fetcher](../fetcher.md).", ""]
    for name in inbox.fetcher.__all__:
        lines += _of_name(name, inbox.fetcher)
    lines += ["## Leased subscriptions", "", "From `inbox.adapters.websocket`: [Orbit](../orbit.md).", ""]
    for name in inbox.adapters.websocket.__all__:
        if name != "OrbitSettings":
            lines += _of_name(name, inbox.adapters.websocket)
    lines += ["## Settings", ""]
    for name in sorted((*SETTINGS, "OrbitSettings")):
        lines += [f"- [`{name}`](settings.md#{name.lower()})"]
    lines += ["", *_from_env(), "## Errors", ""]
    lines += [f"- [`{name}`](errors.md#{name.lower()})" for name in errors()]
    return "\n".join(lines).rstrip() + "\n"


def errors() -> list[str]:
    """What is left: all of it is in the tree of errors."""
    named = {*SETTINGS, *(name for names in GROUPS.values() for name in names)}
    left = [name for name in inbox.__all__ if name not in named]
    assert [name for name in left if getattr(inbox, name).__module__ != "inbox.errors"] == [], (
        "say which group it is in"
    )
    assert named <= set(inbox.__all__), named - set(inbox.__all__)
    return left


def _from_env() -> Iterator[str]:
    method = next(node for node in _source(EnvironmentSettings).body if isinstance(node, ast.FunctionDef))
    yield from ("### from_env", "", "Of all classes of settings but those that are part of another one.", "")
    yield from _of_function(method, "", is_method=True)


def _of_name(name: str, module: ModuleType = inbox) -> Iterator[str]:
    node = _source(getattr(module, name))
    yield from (f"### {name}", "")
    if isinstance(node, ast.ClassDef):
        yield from _of_class(node)
    else:
        yield from _of_function(node, "", is_method=False)


def _source(named: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(named))).body[0]


def _of_class(node: ast.ClassDef) -> Iterator[str]:
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    yield from ("```python", *_decorators(node), *_head(node))
    members = [f"    {ast.unparse(item)}" for item in node.body if _is_field(item)]
    members += ["    " + line for item in methods if item.name == "__init__" for line in signature(item)]
    yield from (*(members or ["    ..."]), "```", "")
    yield from _docstring(parse(ast.get_docstring(node)))
    for item in methods:
        if _is_public(item):
            yield from _of_function(item, f"{node.name}.", is_method=True)


def _head(node: ast.ClassDef) -> list[str]:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    return [f"class {node.name}({bases}):" if bases else f"class {node.name}:"]


def _is_field(item: ast.stmt) -> bool:
    return (
        isinstance(item, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(item.annotation)
        and not ast.unparse(item.target).startswith("_")
    )


def _is_public(item: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """What a port says is for the engine; what has no docstring says all in its name."""
    said = ast.get_docstring(item) or ""
    is_overload = "overload" in {ast.unparse(each) for each in item.decorator_list}
    return said != "" and not said.startswith("See `inbox.ports") and not item.name.startswith("_") and not is_overload


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, *, is_method: bool) -> Iterator[str]:
    if is_method and owner:
        yield from (f"#### {owner}{node.name}", "")
    yield from ("```python", *_decorators(node), *signature(node), "```", "")
    yield from _docstring(parse(ast.get_docstring(node)))


def _decorators(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [f"@{ast.unparse(each)}" for each in node.decorator_list]


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The `def` as a program has it, on several lines where one would be long."""
    begins = f"{'async ' * isinstance(node, ast.AsyncFunctionDef)}def {node.name}("
    ends = f"){'' if node.returns is None else f' -> {ast.unparse(node.returns)}'}: ..."
    given = [*_arguments(node.args)]
    whole = begins + ", ".join(given) + ends
    return [whole] if len(whole) <= _LINE else [begins, *(f"    {each}," for each in given), ends]


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    bare = len(positional) - len(arguments.defaults)
    for number, argument in enumerate(positional):
        yield _argument(argument, arguments.defaults[number - bare] if number >= bare else None)
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _argument(argument, default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if argument.annotation is not None else "="
    return ast.unparse(argument) + ("" if default is None else equals + ast.unparse(default))


def _docstring(said: Docstring) -> Iterator[str]:
    if said.text:
        yield from (said.text, "")
    for section in SECTIONS:
        entries = said.entries.get(section)
        if entries:
            yield from (f"**{section.replace('Args', 'Arguments')}**", "")
            yield from (f"- {f'`{name}`: ' if name else ''}{text}" for name, text in entries)
            yield ""
