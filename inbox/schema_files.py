"""The numbered SQL files of `schema/`, found in a wheel and in a source checkout, with the adopter's names in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from inbox.tables import TableNames, qualified

if TYPE_CHECKING:
    from collections.abc import Sequence

Dialect = Literal["mysql", "mariadb", "sqlite"]

_PACKAGE: Final = Path(__file__).parent
# In a wheel the files lie inside of the package, in a checkout beside it.
_PLACES: Final = (_PACKAGE / "_schema", _PACKAGE.parent / "schema")
_FILE_NAME: Final = re.compile(r"(\d{4})_\w+\.sql")
# A statement that creates a view, with the comment lines that stand directly above it.
_VIEW_STATEMENT: Final = re.compile(r"(?:^--[^\n]*\n)*^CREATE [^;]*\bVIEW\b[^;]*;\n*", re.MULTILINE)
_COMMENT_LINE: Final = re.compile(r"^\s*--[^\n]*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """One numbered file.

    Attributes:
        version: its number, from 1, without gaps.
        name: file name, such as `0001_inbox.sql`.
        text: the whole file.
    """

    version: int
    name: str
    text: str

    @property
    def statements(self) -> tuple[str, ...]:
        """Its statements, without comments and final semicolons, for a driver that takes one at a time.

        The files hold no semicolon outside of comments but those that end a statement.
        """
        sql = _COMMENT_LINE.sub("", self.text)
        return tuple(statement for part in sql.split(";") if (statement := part.strip()))


def schema_files(dialect: Dialect, names: TableNames | None = None, database: str | None = None) -> list[SchemaFile]:
    """Every file for one kind of server, oldest first.

    Args:
        dialect: `mysql`, `mariadb` or `sqlite`.
        names: what the tables are called; None takes the defaults. Without a view its statement is left out.
        database: qualifies the names with this database; None leaves it to the connection.

    Raises:
        FileNotFoundError: the installation is incomplete: neither place holds the files.
        ValueError: the numbers of the files have gaps.
    """
    folder = _folder() / dialect
    paths = sorted(path for path in folder.iterdir() if _FILE_NAME.fullmatch(path.name))
    files = [
        SchemaFile(int(path.name[:4]), path.name, _named(path.read_text("utf-8"), names or TableNames(), database))
        for path in paths
    ]
    _require_numbered(files)
    return files


def _folder() -> Path:
    for place in _PLACES:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"the schema files are missing from this installation: neither {_PLACES[0].name}/ inside of the package "
        f"nor {_PLACES[1].name}/ beside it; install the package again"
    )


def _require_numbered(files: Sequence[SchemaFile]) -> None:
    numbers = [file.version for file in files]
    if numbers != list(range(1, len(files) + 1)) or not numbers:
        raise ValueError(f"the schema files must be numbered 1, 2, 3, …; found {numbers}")


def _named(text: str, names: TableNames, database: str | None) -> str:
    """`text` with the default names, which stand in backquotes, replaced by `names`."""
    defaults = TableNames()
    if names.view is None:
        text = _VIEW_STATEMENT.sub("", text).rstrip("\n") + "\n"
    chosen = {
        default: name
        for default, name in (
            (defaults.inbox, names.inbox),
            (defaults.attempt, names.attempt),
            (defaults.quarantine, names.quarantine),
            (defaults.worker, names.worker),
            (defaults.schema, names.schema),
            (defaults.view, names.view),
        )
        if default is not None and name is not None
    }
    if database is None and names == defaults:
        return text
    quoted = re.compile("`(" + "|".join(map(re.escape, chosen)) + ")`")
    return quoted.sub(lambda match: qualified(chosen[match[1]], database), text)
