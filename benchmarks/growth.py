"""What an event costs as the inbox table grows past the buffer pool, by two layouts of its key and two kinds of id.

    python -m benchmarks.growth                                  # to ten million rows; more than half an hour
    python -m benchmarks.growth --rows 10000,1000000 --pool 128  # a look

The pool is small, so that ten million rows are to it what a hundred million are to the pool of a usual server. Told are
pages that were read and written for an event beside its time: those are the same on a busy machine and on a quiet one.

Each unit is the inbox's own: the insert of a row, an update of one account, and COMMIT, on one connection. `retention`
is the same while for every 500 new rows the 500 oldest are deleted by the statements of `inbox prune`; a duplicate is a
known id, drawn from all of the table, whose insert is refused.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pymysql
from pymysql.cursors import Cursor

from benchmarks.machine import commit, machine
from benchmarks.run import DATA, say
from tests.services.probe import connect_database
from tests.services.session import Services

CONSUMER: Final = "bench"
ACCOUNTS: Final = 10_000
#: Rows that are filled in, or deleted, together.
CHUNK: Final = 20_000
PRUNED: Final = 500
#: Mebibytes of the pool while a table is filled: with the small one that would take hours.
ROOMY: Final = 2048

#: The product's own table, and the same rows in the order of their arrival, with the key that knows duplicates beside.
LAYOUTS: Final = {
    "clustered": "PRIMARY KEY (consumer_name, event_id)",
    "surrogate": "id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, UNIQUE KEY known (consumer_name, event_id)",
}
#: 36 octets like a UUID's: without any order, or in the order of their time.
IDS: Final = {
    "random": "LEFT(SHA2(CONCAT('grown-', {n}), 256), 36)",
    "ordered": "CONCAT(LPAD({n}, 18, '0'), LEFT(SHA2({n}, 256), 18))",
}
_DIGITS: Final = "(SELECT 0 AS n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
_NUMBERS: Final = (
    f"(SELECT a.n * 10000 + b.n * 1000 + c.n * 100 + d.n * 10 + e.n AS n FROM {_DIGITS} a JOIN {_DIGITS} b "  # noqa: S608 - digits
    f"JOIN {_DIGITS} c JOIN {_DIGITS} d JOIN {_DIGITS} e) AS numbers"
)
#: The server's own counters, by what they are called here.
_COUNTERS: Final = {
    "pages_read": "Innodb_buffer_pool_reads",
    "pages_written": "Innodb_pages_written",
    "log_octets": "Innodb_os_log_written",
}


@dataclass(frozen=True)
class Cost:
    """What one event cost, on average; its time as a median.

    Attributes:
        layout, ids, rows, work: what was measured.
        p50_us, p99_us: microseconds, from BEGIN to the answer of COMMIT or of the refusal.
        pages_read, pages_written, log_octets: by the server's counters.
        table_mb: mebibytes of the table and its indexes.
    """

    layout: str
    ids: str
    rows: int
    work: str
    p50_us: float
    p99_us: float
    pages_read: float
    pages_written: float
    log_octets: float
    table_mb: float


class Table:
    """One inbox table that grows, and the account table beside it.

    Args:
        cursor: of a connection in autocommit.
        layout: one of LAYOUTS.
        ids: one of IDS.
        draw: decides which known ids come again.
    """

    def __init__(self, cursor: Cursor, layout: str, ids: str, draw: random.Random) -> None:
        self._cursor = cursor
        self.layout = layout
        self.ids = ids
        self._draw = draw
        self.rows = 0
        #: Rows that were deleted, all of them the oldest.
        self._pruned = 0
        self._create()

    def _create(self) -> None:
        self._cursor.execute("DROP TABLE IF EXISTS inbox")
        self._cursor.execute(
            "CREATE TABLE inbox (consumer_name VARBINARY(128) NOT NULL, event_id VARBINARY(512) NOT NULL, "
            "fingerprint BINARY(32) NULL, fingerprint_scheme TINYINT UNSIGNED NULL, "
            f"processed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), {LAYOUTS[self.layout]}, "
            "KEY inbox_by_time (consumer_name, processed_at)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
        )

    def grow(self, rows: int) -> None:
        """Fill in rows up to this number, a millisecond after one another, from sixty days ago."""
        while self.rows < rows:
            count = min(CHUNK, rows - self.rows)
            self._cursor.execute(
                "INSERT INTO inbox (consumer_name, event_id, fingerprint, fingerprint_scheme, processed_at) "  # noqa: S608 - texts of ours
                f"SELECT '{CONSUMER}', {IDS[self.ids].format(n=f'n + {self.rows}')}, UNHEX(SHA2(n, 256)), 11, "
                f"UTC_TIMESTAMP(6) - INTERVAL 60 DAY + INTERVAL (n + {self.rows}) * 1000 MICROSECOND "
                f"FROM {_NUMBERS} WHERE n < {count}"
            )
            self.rows += count

    def id_of(self, number: int) -> bytes:
        """As `grow` makes them."""
        self._cursor.execute(f"SELECT {IDS[self.ids].format(n=number)}")
        ((found,),) = self._cursor.fetchall()
        return found.encode() if isinstance(found, str) else bytes(found)

    def fresh(self, count: int) -> list[bytes]:
        """Ids of the next events; whoever takes them inserts them all."""
        made = [self.id_of(number) for number in range(self.rows, self.rows + count)]
        self.rows += count
        return made

    def known(self, count: int) -> list[bytes]:
        """Ids of rows that are there, from anywhere in the table."""
        return [self.id_of(self._draw.randrange(self._pruned, self.rows)) for _ in range(count)]

    def apply(self, identifier: bytes) -> float:
        """One unit; microseconds."""
        account = self._draw.randrange(ACCOUNTS)
        began = time.perf_counter()
        self._cursor.execute("BEGIN")
        try:
            self._cursor.execute(
                "INSERT INTO inbox (consumer_name, event_id, fingerprint, fingerprint_scheme) VALUES (%s, %s, %s, 11)",
                (CONSUMER.encode(), identifier, bytes(32)),
            )
        except pymysql.IntegrityError:
            self._cursor.execute("ROLLBACK")
            return 1e6 * (time.perf_counter() - began)
        self._cursor.execute("UPDATE bench_account SET balance = balance + 1 WHERE id = %s", (account,))
        self._cursor.execute("COMMIT")
        return 1e6 * (time.perf_counter() - began)

    def prune(self) -> None:
        """Delete the oldest rows, as `inbox prune` does: found by time without a lock, deleted by their key."""
        key = "id" if self.layout == "surrogate" else "event_id"
        self._cursor.execute(
            f"SELECT {key} FROM inbox FORCE INDEX (inbox_by_time) WHERE consumer_name = %s "  # noqa: S608 - names of ours
            "ORDER BY processed_at LIMIT %s",
            (CONSUMER.encode(), PRUNED),
        )
        keys = [found for (found,) in self._cursor.fetchall()]
        where = "" if self.layout == "surrogate" else "consumer_name = %s AND "
        values = (*((CONSUMER.encode(),) if where else ()), *keys)
        marks = ", ".join(["%s"] * len(keys))
        self._cursor.execute(f"DELETE FROM inbox WHERE {where}{key} IN ({marks})", values)  # noqa: S608 - names of ours
        self._pruned += len(keys)

    def megabytes(self) -> float:
        """Of the table and its indexes."""
        self._cursor.execute("ANALYZE TABLE inbox")
        self._cursor.execute(
            "SELECT data_length + index_length FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_name = 'inbox'"
        )
        ((octets,),) = self._cursor.fetchall()
        return round(int(octets) / 2**20, 1)


class Server:
    """The database server's pool and counters.

    Args:
        cursor: of somebody who may set global variables.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def resize(self, megabytes: int) -> None:
        """Give the pool this size, and return when it has it."""
        self._cursor.execute(f"SET GLOBAL innodb_buffer_pool_size = {megabytes * 2**20}")
        while self._status("Innodb_buffer_pool_resize_status_code") not in ("0", None):
            time.sleep(0.1)
        while not (self._status("Innodb_buffer_pool_resize_status") or "Completed").startswith(("Completed", "Size")):
            time.sleep(0.1)

    def settle(self) -> None:
        """Return when what the last work left to be written is written."""
        while (before := self._number("Innodb_pages_written")) is not None:
            time.sleep(1)
            if self._number("Innodb_pages_written") - before < PRUNED // 10:
                return

    def counters(self) -> dict[str, int]:
        """As they stand."""
        return {name: self._number(counter) for name, counter in _COUNTERS.items()}

    def _number(self, name: str) -> int:
        return int(self._status(name) or 0)

    def _status(self, name: str) -> str | None:
        self._cursor.execute("SHOW GLOBAL STATUS LIKE %s", (name,))
        found = self._cursor.fetchone()
        return str(found[1]) if found else None


def measure(table: Table, server: Server, units: int, *, rows: int) -> Iterator[Cost]:
    """New events, duplicates, and new events while old ones are deleted."""
    megabytes = table.megabytes()
    for work in ("new", "duplicate", "retention"):
        chosen = table.known(units) if work == "duplicate" else table.fresh(units)
        for identifier in chosen[: units // 4]:  # what the pool would hold by now
            table.apply(identifier)
        server.settle()
        before, taken = server.counters(), []
        for number, identifier in enumerate(chosen[units // 4 :], 1):
            taken.append(table.apply(identifier))
            if work == "retention" and number % PRUNED == 0:
                table.prune()
        spent = {name: round((count - before[name]) / len(taken), 2) for name, count in server.counters().items()}
        times = statistics.quantiles(taken, n=100)
        yield Cost(
            layout=table.layout,
            ids=table.ids,
            rows=rows,
            work=work,
            p50_us=round(times[49]),
            p99_us=round(times[98]),
            table_mb=megabytes,
            **spent,
        )


def study(cursor: Cursor, options: argparse.Namespace) -> Iterator[Cost]:
    """Every layout with every kind of id, at every size."""
    cursor.execute("CREATE TABLE bench_account (id INT PRIMARY KEY, balance BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB")
    cursor.execute(f"INSERT INTO bench_account (id) SELECT n FROM {_NUMBERS} WHERE n < {ACCOUNTS}")  # noqa: S608 - numbers
    server, draw = Server(cursor), random.Random(options.seed)  # noqa: S311 - test data
    for layout in options.layouts:
        for ids in options.ids:
            table = Table(cursor, layout, ids, draw)
            for rows in options.rows:
                say(f"{layout}, {ids} ids: growing to {rows:,} rows")
                server.resize(ROOMY)
                table.grow(rows)
                server.resize(options.pool)
                yield from measure(table, server, options.units, rows=rows)


@contextmanager
def connected(dsn: str) -> Iterator[Cursor]:
    """In a database of this run's, dropped afterwards."""
    name = f"bench_{secrets.token_hex(4)}"
    with connect_database(dsn, read_timeout=600) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        try:
            cursor.execute(f"USE `{name}`")
            yield cursor
        finally:
            cursor.execute(f"DROP DATABASE `{name}`")


def markdown(costs: Sequence[Cost]) -> str:
    """A table of them."""
    lines = [
        "| layout | ids | rows | table MB | work | p50 µs | p99 µs | pages read | pages written | log octets |",
        "|---|---|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {each.layout} | {each.ids} | {each.rows:,} | {each.table_mb:,} | {each.work} | {each.p50_us:,.0f} | "
        f"{each.p99_us:,.0f} | {each.pages_read} | {each.pages_written} | {each.log_octets:,.0f} |"
        for each in costs
    ]
    return "\n".join(lines)


def read(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=_numbers, default=[10_000, 100_000, 1_000_000, 10_000_000], help="sizes")
    parser.add_argument("--pool", type=int, default=128, help="mebibytes of the buffer pool")
    parser.add_argument("--units", type=int, default=4000, help="events of each kind; a quarter of them to warm up")
    parser.add_argument("--layouts", type=_words, default=[*LAYOUTS], help=", ".join(LAYOUTS))
    parser.add_argument("--ids", type=_words, default=[*IDS], help=", ".join(IDS))
    parser.add_argument("--data", type=Path, default=DATA, help=f"where the server's data lie ({DATA})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench/growth.json"))
    return parser.parse_args(words)


def _numbers(text: str) -> list[int]:
    return sorted(int(number) for number in text.split(","))


def _words(text: str) -> list[str]:
    return text.split(",")


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON."""
    options = read(words)
    costs: list[Cost] = []
    with Services(say=say, data=options.data) as services:
        service = services["mysql"]
        with connected(service.dsn) as cursor:
            for cost in study(cursor, options):
                costs.append(cost)
                say(markdown([cost]).splitlines()[-1])
        version = ".".join(map(str, service.version or ()))
    print(markdown(costs))  # noqa: T201 - the result
    told: dict[str, Any] = {"mysql": version, "commit": commit(), "pool_mb": options.pool, "machine": machine()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**told, "costs": [asdict(cost) for cost in costs]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
