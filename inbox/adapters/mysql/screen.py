"""Which statements a handler may send: pure, on the bytes that would go to the server.

Safe means: what is skipped here as a comment is skipped by the servers too, and whatever does not clearly begin with
an allowed keyword is refused. The rules are those of both servers' lexers (`sql_lex.cc`; manual, "Comments"): blanks
are octets 9 to 13 and 32; `#` and `--` with a blank or control character behind it run to the end of the line; `/*`
runs to the first `*/`; `/*!` and MariaDB's `/*M!` are no comments, their content is executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: Manual, "Statements That Cause an Implicit Commit", is why this is a list of what may pass, not of what may not.
ALLOWED: Final = frozenset(
    b"SELECT INSERT UPDATE DELETE REPLACE WITH VALUES TABLE DO SHOW EXPLAIN DESCRIBE DESC".split()
)
#: Only these may stand behind an opening parenthesis.
_QUERIES: Final = frozenset({b"SELECT", b"WITH", b"VALUES", b"TABLE"})

_BLANKS: Final = re.compile(rb"(?:[\t-\r ]+|#[^\n\0]*\n|--(?=[\x01-\x20\x7f])[^\n\0]*\n|/\*(?!!|[Mm]!)(?s:.*?)\*/)*")
_KEYWORD: Final = re.compile(rb"[A-Za-z]+(?![0-9A-Za-z_$\x80-\xff])")

_NAME: Final = rb"(?:[0-9A-Za-z_$\x80-\xff]+|`[^`\0]+`)"
_END: Final = rb"[\t-\r ]*;?[\t-\r ]*\Z"
_SAVEPOINT: Final = re.compile(
    rb"(?:SAVEPOINT|RELEASE\s+SAVEPOINT|ROLLBACK(?:\s+WORK)?\s+TO(?:\s+SAVEPOINT)?)\s+(?P<name>" + _NAME + rb")" + _END,
    re.IGNORECASE,
)
#: Names of the framework's own savepoints begin so, and are not the handler's to release or replace.
OWN_SAVEPOINT: Final = b"inbox_"

#: Session variables that bear on nothing but the handler's own statements. The session is discarded afterwards. Not
#: `unique_checks`: without it MariaDB loads an empty table in bulk, and an error then undoes the whole transaction, the
#: claim with it (`row_mysql_handle_errors`).
_HARMLESS: Final = (
    rb"cte_max_recursion_depth|div_precision_increment|foreign_key_checks|group_concat_max_len|join_buffer_size|"
    rb"lc_time_names|max_execution_time|max_heap_table_size|max_recursive_iterations|max_statement_time|"
    rb"optimizer_switch|sort_buffer_size|sql_safe_updates|sql_select_limit|time_zone|tmp_table_size"
)
_VARIABLE: Final = (
    rb"(?:@(?:[0-9A-Za-z_$.]+|`[^`\0]+`)|(?:(?:SESSION|LOCAL)\s+|@@(?:(?:SESSION|LOCAL)\.)?)?(?:" + _HARMLESS + rb"))"
)
# No backslash in a string: what it does depends on the session's NO_BACKSLASH_ESCAPES. No function, no sub-query, no
# comment: a value that needs one can be selected INTO a variable.
_VALUE: Final = rb"(?:'[^'\\\0]*'|\"[^\"\\\0]*\"|[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?|@{0,2}[A-Za-z_][0-9A-Za-z_$.]*)"
_ASSIGNMENT: Final = _VARIABLE + rb"\s*:?=\s*" + _VALUE
_SET: Final = re.compile(rb"SET\s+" + _ASSIGNMENT + rb"(?:\s*,\s*" + _ASSIGNMENT + rb")*" + _END, re.IGNORECASE)

# Everything that hides its content from the grammar, and the one octet that ends a statement.
# Possessive, and what has no end reaches to the end of the text (a syntax error to the servers): else a text with a
# lone quote, as a careless handler makes of somebody's name, would hold the event loop for ever.
_STRINGS: Final = rb"'(?:[^'\\]++|\\(?s:.|\Z)|'')*+(?:'|\Z)|\"(?:[^\"\\]++|\\(?s:.|\Z)|\"\")*+(?:\"|\Z)"
_PLAIN_STRINGS: Final = rb"'[^']*+(?:'|\Z)|\"[^\"]*+(?:\"|\Z)"
_OTHER_OPAQUE: Final = rb"|`[^`]*`|/\*(?!!|[Mm]!)(?s:.*?)(?:\*/|\Z)|#[^\n]*|--(?=[\x00-\x20\x7f])[^\n]*"
_HIDDEN: Final = re.compile(_STRINGS + _OTHER_OPAQUE)
_PARTS: Final = re.compile(_STRINGS + _OTHER_OPAQUE + rb"|(?P<end>;)")
_PLAIN_PARTS: Final = re.compile(_PLAIN_STRINGS + _OTHER_OPAQUE + rb"|(?P<end>;)")

#: Worth a closer look; most statements have none of it.
_SUSPECT: Final = re.compile(rb":=|@|lock", re.IGNORECASE)
_TRACES: Final = re.compile(rb":=|\bINTO\s*@|\b(?:GET_LOCK|SERVICE_GET_(?:READ|WRITE)_LOCKS)\b", re.IGNORECASE)

_ENDS: Final = frozenset(b"COMMIT ROLLBACK BEGIN START XA".split())
_COMMITS: Final = frozenset(
    b"ALTER ANALYZE CACHE CHANGE CHECK CREATE DROP FLUSH GRANT IMPORT INSTALL LOAD LOCK OPTIMIZE PURGE RENAME REPAIR "
    b"RESET REVOKE STOP TRUNCATE UNINSTALL UNLOCK".split()
)
_OTHERS: Final = frozenset(
    b"BINLOG CALL CASE CLONE DEALLOCATE DECLARE EXECUTE FOR GET HANDLER HELP IF KILL LOOP PREPARE RELEASE REPEAT "
    b"RESIGNAL RESTART SAVEPOINT SET SHUTDOWN SIGNAL USE WHILE".split()
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about a statement.

    Attributes:
        refusal: why it may not be sent; None where it may. Names a keyword and never a value.
        traces: it may leave something on the session that the next unit would see.
        sets, names: the savepoint that it sets, and the one that it goes back to or releases; in lower case.
    """

    refusal: str | None = None
    traces: bool = False
    sets: bytes | None = None
    names: bytes | None = None


_FINE: Final = Finding()
_TRACED: Final = Finding(traces=True)


def screen(sql: bytes, *, allow_call: bool = False, plain_backslashes: bool = False) -> Finding:
    """Whether a handler may send `sql`.

    Args:
        sql: the statement in UTF-8, complete, as it would be sent.
        allow_call: let `CALL` through.
        plain_backslashes: the session has NO_BACKSLASH_ESCAPES, so that strings end elsewhere; texts are then taken
            for traces more often than they are.
    """
    start = _match_end(_BLANKS, sql, 0)
    opened = start
    while sql[opened : opened + 1] == b"(":
        opened = _match_end(_BLANKS, sql, opened + 1)
    found = _KEYWORD.match(sql, opened)
    if found is None:
        return Finding(_unreadable(sql, opened))
    keyword = found.group().upper()
    behind = _match_end(_BLANKS, sql, found.end())
    # `label: LOOP … COMMIT … END LOOP` is one statement of MariaDB's.
    if sql[behind : behind + 1] == b":" or (opened > start and keyword not in _QUERIES):
        return Finding("a statement of a shape that handlers may not send")
    finding = _judge(keyword, sql, start, allow_call)
    parts = _PLAIN_PARTS if plain_backslashes else _PARTS
    if finding.refusal is None and b";" in sql and _has_second_statement(sql, start, parts):
        return Finding(f"two statements in one text ({keyword.decode()} and another): send them one by one")
    if finding is _FINE and _SUSPECT.search(sql) and leaves_traces(sql, plain_backslashes=plain_backslashes):
        return _TRACED
    return finding


def _judge(keyword: bytes, sql: bytes, start: int, allow_call: bool) -> Finding:
    """Decide by the first keyword, and for the few that need it by the whole text."""
    if keyword in ALLOWED:
        return _FINE
    if keyword in (b"SAVEPOINT", b"RELEASE", b"ROLLBACK"):
        savepoint = _SAVEPOINT.match(sql, start)
        name = savepoint["name"].strip(b"`").lower() if savepoint else OWN_SAVEPOINT
        if not name.startswith(OWN_SAVEPOINT):
            return Finding(sets=name) if keyword == b"SAVEPOINT" else Finding(names=name)
    elif keyword == b"SET":
        if _SET.match(sql, start):
            return _TRACED
    elif keyword == b"CALL" and allow_call:
        # Nobody can see what a procedure leaves behind.
        return _TRACED
    return Finding(_refusal(keyword))


def leaves_traces(sql: bytes, *, plain_backslashes: bool = False) -> bool:
    """Whether a statement sets user variables or takes named locks, text inside of strings not counted."""
    return _TRACES.search(sql if plain_backslashes else _HIDDEN.sub(b" ", sql)) is not None


def _has_second_statement(sql: bytes, start: int, parts: re.Pattern[bytes]) -> bool:
    """Whether anything but blanks and comments follows the first `;` that is not inside of something.

    The server would refuse the text, for multi-statements are off; it would say so with an ordinary error that a
    handler may swallow, and then half of what it meant would be missing.
    """
    for part in parts.finditer(sql, start):
        if part["end"]:
            return _match_end(_BLANKS, sql + b"\n", part.end()) < len(sql)
    return False


def _match_end(pattern: re.Pattern[bytes], sql: bytes, position: int) -> int:
    found = pattern.match(sql, position)
    return found.end() if found else position


def _unreadable(sql: bytes, position: int) -> str:
    if sql[position : position + 2] == b"/*":
        return "a text that begins with an executable or unfinished comment"
    return "a text that does not begin with a keyword"


def _refusal(keyword: bytes) -> str:
    """One sentence naming the keyword, if it is one: an unknown word may be part of a value."""
    name = keyword.decode()
    if keyword in _ENDS:
        return f"{name} would split the unit: return to commit, raise to undo, begin_nested() for a part"
    if keyword in _COMMITS:
        return f"{name} can commit implicitly: run it outside of handlers"
    if keyword == b"CALL":
        return "CALL is off, for a procedure can commit from inside: DatabaseSettings(allow_call=True) allows it"
    if keyword == b"SET":
        return "SET of anything but harmless variables to plain values"
    if keyword in _OTHERS:
        return f"{name} in this form is not for handlers"
    return "a statement that begins with no keyword handlers may use"
