"""The tables of a test's database, copied from those that the same steps have made for an earlier test.

Making them by the package's own steps is the business of the tests of those steps. Everywhere else only the outcome
counts, and the server has it in words: said again at once, they take a third of the time.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from urllib.parse import urlsplit

import pymysql
from pymysql.constants import CLIENT

from tests.pairs import Pair

#: What a server has to be told, by its address and by what is made.
_KNOWN: dict[tuple[str, str], Sequence[str]] = {}


async def make_once(pair: Pair, what: str, make: Callable[[], Awaitable[None]]) -> None:
    """Have in the test's database the tables and views that `make` brings about, with their rows.

    Args:
        what: names what `make` does, the same for every test.
    """
    key = (pair.database.dsn, what)
    with closing(_connect(pair)) as connection, connection.cursor() as cursor:
        if key in _KNOWN:
            cursor.execute(";\n".join(_KNOWN[key]))
            while cursor.nextset():
                pass
        else:
            before = _kinds(cursor)
            await make()
            made = {name: kind for name, kind in _kinds(cursor).items() if name not in before}
            _KNOWN[key] = _described(pair.schema, made, cursor)


def _kinds(cursor: pymysql.cursors.Cursor) -> dict[str, str]:
    """The names of what is there, each with whether it is a VIEW."""
    cursor.execute("SHOW FULL TABLES")
    return dict(cursor.fetchall())


def _described(schema: str, made: Mapping[str, str], cursor: pymysql.cursors.Cursor) -> list[str]:
    """Statements that make it again."""
    statements = []
    for name, kind in sorted(made.items(), key=lambda each: each[1] == "VIEW"):
        cursor.execute(f"SHOW CREATE {'VIEW' if kind == 'VIEW' else 'TABLE'} `{name}`")
        row = cursor.fetchone()
        assert row is not None
        statements.append(str(row[1]).replace(f"`{schema}`.", ""))
        if kind != "VIEW":
            cursor.execute(f"SELECT * FROM `{name}`")  # noqa: S608 - a name that the server told
            for values in cursor.fetchall():
                places = ", ".join(["%s"] * len(values))
                statements.append(cursor.mogrify(f"INSERT INTO `{name}` VALUES ({places})", values))  # noqa: S608
    return statements


def _connect(pair: Pair) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    parts = urlsplit(pair.database.dsn)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=pair.schema,
        autocommit=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
        ssl_disabled=True,  # as in `connect` of the kill tests
    )
