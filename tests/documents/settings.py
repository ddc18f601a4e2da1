"""`docs/reference/settings.md`: each setting, its default, its variable, what it is for."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from inbox import Binding, ConsumerSettings, DatabaseSettings, RabbitMQSettings, RetryRule, SQLiteQueueSettings
from inbox.adapters.websocket import OrbitSettings
from inbox.config import EnvironmentSettings
from inbox.core.environment import Variable, variables
from tests.documents.commands import environment
from tests.documents.docstrings import WRITTEN, parse, table

CLASSES: tuple[type[EnvironmentSettings], ...] = (
    ConsumerSettings,
    DatabaseSettings,
    RabbitMQSettings,
    SQLiteQueueSettings,
    OrbitSettings,
)
FOR = {
    ConsumerSettings: "`Inbox(..., settings=ConsumerSettings(...))`",
    DatabaseSettings: "`MySQL(url, DatabaseSettings(...))`, and `SQLite` as far as it is not about servers",
    RabbitMQSettings: "`RabbitMQ(url, queue, bindings, RabbitMQSettings(...))`",
    SQLiteQueueSettings: '`SQLiteQueue("events.db", SQLiteQueueSettings(...))`',
    OrbitSettings: "`OrbitTransport(url, subscription_id, credential, OrbitSettings(...))`",
}

_INTRODUCTION = """
Settings are small frozen values, checked when they are made: a wrong one is a `ConfigurationError` that says what is
right, before anything is opened. All have defaults, so `Inbox(name, store=MySQL(url))` is complete.

## From the environment

Nothing reads the environment by itself. Where operators are to have a say, the code asks:

```python
from inbox import (
    ConsumerSettings, DatabaseSettings, Inbox, MySQL, RabbitMQ, RabbitMQSettings, RetryPolicy, RetryRule, env
)

inbox = Inbox(
    "billing",
    store=MySQL(env("DATABASE_URL"), DatabaseSettings.from_env()),
    transport=RabbitMQ(env("AMQP_URL"), "billing", settings=RabbitMQSettings.from_env()),
    settings=ConsumerSettings.from_env(                         # what is set there wins over what stands here
        concurrency=16,
        retry=RetryPolicy(rules=(RetryRule(ValueError, max_attempts=1),)),
    ),
)
```

```sh
export INBOX_CONCURRENCY=4 INBOX_RETRY_DELAYS=5,60 INBOX_RABBITMQ_TLS_CA=/etc/ssl/broker.pem
inbox run billing.app:inbox
```

- A variable that is set wins over the defaults in the code; without `from_env` the settings are what the code says.
  One that is empty counts as not set.
- Times are numbers of seconds: `30` or `0.5`. What is true is `true`, `yes`, `on` or `1`; what is false `false`, `no`,
  `off` or `0`. Lists have commas: `1,10,60`. Where a setting may be None, that is `none`.
- `unknown_types` is a list of pairs: `audit.*=ignore,invoice.due=fail`.
- A name that is almost one of a setting is an error, `INBOX_DEADLIN is no setting: did you mean INBOX_DEADLINE?`, and
  so is a text that cannot be read. Messages name the variable and what is right, never what is in it.
- Only code can say `retry.rules`, which are made of exception classes, and `Binding`.
- `from_env("BILLING_")` takes another prefix than `INBOX_`: for two consumers in one process, or where names are taken.
- Addresses hold passwords, so they are no settings: read them with `env("DATABASE_URL")`, which names the variable that
  is missing.
"""


def page() -> str:
    lines = [WRITTEN, "# Settings", *_INTRODUCTION.splitlines(), ""]
    for kind in CLASSES:
        lines += _settings(kind)
    for made_in_code in (RetryRule, Binding):
        lines += _in_code(made_in_code)
    lines += [
        "## Variables of the commands",
        "",
        "The options of [commands](commands.md) that a variable can stand for; what is written as an option wins.",
        "",
        *table(("variable", "option", "of"), *environment()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _settings(kind: type[EnvironmentSettings]) -> Iterator[str]:
    prefix = "INBOX_" + kind.environment_area
    by_path = {variable.path: variable for variable in variables(kind, prefix)}
    yield from (f"## {kind.__name__}", "", f"{parse(kind.__doc__).text} For {FOR[kind]}.", "")
    yield from table(*_rows(kind, "", by_path))
    for path, group in _groups(kind):
        yield from (f"## {group.__name__}", "", f"{parse(group.__doc__).text} It is `{kind.__name__}.{path}`.", "")
        yield from table(*_rows(group, f"{path}.", by_path))


def _groups(kind: Any) -> Iterator[tuple[str, type]]:
    for field in fields(kind):
        default = _default(field)
        if hasattr(default, "__dataclass_fields__"):
            yield field.name, type(default)
    for variable in variables(kind, ""):
        if variable.group is not None:
            yield variable.path, variable.group


def _in_code(kind: Any) -> Iterator[str]:
    docstring = parse(kind.__doc__)
    yield from (f"## {kind.__name__}", "", f"{docstring.text} In code only.", "")
    rows = [(f"`{field.name}`", _shown(field), docstring.of("Attributes", field.name)) for field in fields(kind)]
    yield from table(("setting", "default", "what for, and why"), *rows)


def _rows(kind: Any, path: str, by_path: dict[str, Variable]) -> Iterator[tuple[str, ...]]:
    docstring = parse(kind.__doc__)
    yield "setting", "default", "unit", "variable", "what for, and why"
    for field in fields(kind):
        said = docstring.of("Attributes", field.name)
        variable = _variable(by_path, path + field.name)
        yield f"`{field.name}`", _shown(field), _unit(field, said), variable, said


def _variable(by_path: dict[str, Variable], path: str) -> str:
    found = by_path.get(path)
    if found is None:
        name = next(variable.name for variable in by_path.values() if variable.path.startswith(f"{path}."))
        return f"`{name[: name.rindex(path.upper()) + len(path)]}_…`, below"
    if found.form is None:
        return "in code only"
    more = f", or any of `{found.name}_…`, below" if found.group is not None else ""
    return f"`{found.name}`{more}"


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _shown(field: Field[Any]) -> str:
    default = _default(field)
    if default is MISSING:
        return "must be given"
    if hasattr(default, "__dataclass_fields__"):
        return f"`{type(default).__name__}()`"
    return f"`{default.__name__}`" if isinstance(default, type) else f"`{default!r}`"


def _unit(field: Field[Any], said: str) -> str:
    if not re.search(r"\b(int|float)\b", str(field.type)):
        return ""
    word = re.search(r"\b(share|seconds|octets)\b", said.partition(".")[0])
    return "number" if word is None else {"share": "share, 0 to 1"}.get(word.group(), word.group())
