"""`python -m tests.soak --minutes 5`: see `tests.soak`. Exits with 1 where the audit finds a difference."""

import argparse
import asyncio
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence

from tests.pairs import Pair, create_schema, delete_names, drop_schema
from tests.services.catalog import PAIRS
from tests.services.session import Services
from tests.soak.run import Plan, Report, Soak, make_world

_LONGEST = 24 * 60.0
#: Seconds between two lines where nobody watches.
_SELDOM = 10.0


def main(words: Sequence[str] | None = None) -> int:
    """Run it, and say how it ended."""
    given = _parser().parse_args(words)
    seed = random.randrange(1_000_000) if given.seed is None else given.seed  # noqa: S311 - no secret
    os.environ.setdefault("INBOX_TEST_LOG", "ERROR")  # what is done to the workers is no news
    plan = Plan(given.minutes * 60, seed, rate=given.rate, workers=given.workers)
    names = PAIRS[given.pair]
    _err(f"soak: seed {seed}; repeat the draws by --seed {seed}")
    with Services(say=_err) as services:
        services.start([names.database, names.broker])
        database, broker = services[names.database], services[names.broker]
        if not (database.is_ours and broker.is_ours):
            _err("soak: these servers are somebody else's: they are neither restarted nor killed")
        pair = Pair(given.pair, database, broker, create_schema(database, "soak"))
        try:
            report = asyncio.run(_run(pair, plan))
        finally:
            drop_schema(database, pair.schema)
            asyncio.run(delete_names(pair))
    print(report.as_json() if given.json else _told(report))
    return 1 if report.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Load, kills, cuts, outages; an audit.")
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="of load; 5 by default, a day at most")
    parser.add_argument("--seed", type=int, help="of every draw; drawn where none is given")
    parser.add_argument("--pair", choices=[*PAIRS], default="newest", help="on these servers")
    parser.add_argument("--rate", type=float, default=60.0, help="new events a second")
    parser.add_argument("--workers", type=int, default=3, help="processes")
    parser.add_argument("--json", action="store_true", help="the report as one line of JSON")
    return parser


def _minutes(text: str) -> float:
    minutes = float(text)
    if not (math.isfinite(minutes) and 0 < minutes <= _LONGEST):
        raise argparse.ArgumentTypeError(f"more than 0 and at most {_LONGEST:g}")
    return minutes


async def _run(pair: Pair, plan: Plan) -> Report:
    soak = Soak(await make_world(pair), plan, _live())
    for number in (signal.SIGINT, signal.SIGTERM):  # an early end has its audit too
        asyncio.get_running_loop().add_signal_handler(number, soak.enough.set)
    return await soak.run()


def _live() -> Callable[[str], None]:
    """Over and over in one line for who watches; now and then a line for a log."""
    said_at = -_SELDOM

    def say(line: str) -> None:
        nonlocal said_at
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()
        elif time.monotonic() - said_at >= _SELDOM:
            said_at = time.monotonic()
            _err(line)

    return say


def _told(report: Report) -> str:
    done = ", ".join(f"{name} {number}" for name, number in sorted(report.done.items()) if number)
    lines = [
        "",
        f"seed {report.seed}, {report.pair} servers, {report.seconds:g} s, settled after {report.settling:g} s",
        f"{report.events} events in {report.deliveries} deliveries",
        f"{report.applied} applied, {report.quarantined} quarantined",
        f"done to them: {done}",
        *(f"DIFFERENCE: {difference}" for difference in report.differences),
        "the audit found differences" if report.differences else "the audit found no difference",
    ]
    return "\n".join(lines)


def _err(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
