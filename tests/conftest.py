"""Fixtures that every test may use: `pair` (and what hangs on it) and `driver`; and the life of the servers."""

import asyncio
import gc
import hashlib
import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

from inbox.runtime.loops import LOOP_VARIABLE, EventLoop
from tests import rotation
from tests.pairs import DRIVERS, Driver, Pair, create_schema, delete_names, drop_schema
from tests.pure import is_pure
from tests.services.catalog import PAIRS, SERVICES, Say
from tests.services.service import ServiceError
from tests.services.session import Services, names_of

TESTS = Path(__file__).parent
KINDS = ("unit", "architecture", "conformance", "integration", "crash", "concurrency", "acceptance")
#: Characters of a parameter that stand in a test's name.
LONGEST_ID = 200
SERVICES_OF_RUN = pytest.StashKey[Services]()
#: Those that there are here.
LOOPS = [EventLoop.ASYNCIO, *([EventLoop.UVLOOP] if find_spec("uvloop") else [])]
DESELECTED = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pair", choices=[*PAIRS], help="run on this pair of servers only")
    parser.addoption("--driver", choices=DRIVERS, help="reach the databases over this driver only")
    parser.addoption(
        "--rotate", type=int, metavar="SEED", help="run each test on one of its pairs and drivers, drawn by this seed"
    )
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="with --rotate: a draw of the tests, 1 of N")
    parser.addoption("--without-pure", action="store_true", help="leave out what no library can change (tests/pure.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Before aiormq 7 the client library leaves the socket of a broken link to the garbage collector, which closes it.

    That may be in any later test. The newest libraries' run still sees whatever we leave ourselves.
    """
    if int(version("aiormq").partition(".")[0]) < 7:
        for what in ("unclosed", "loop is closed"):
            config.addinivalue_line("filterwarnings", f"ignore:{what}:ResourceWarning")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pair" in metafunc.fixturenames:
        only = metafunc.config.getoption("--pair")
        metafunc.parametrize("pair", [only] if only else [*PAIRS], indirect=True)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A short id for a long text: pytest puts the id into the environment, and older releases put all of it there."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_ID:
        digest = hashlib.sha256(val if isinstance(val, bytes) else val.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{argname}-{len(val)}-{digest[:6]}"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by the folder it is in, and take out what has no turn or cannot be asked of another's servers."""
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        if kind in KINDS:
            item.add_marker(kind)
    if (only := config.getoption("--driver")) is not None:
        _take_out(config, items, {item for item in items if _given_driver(item) in {*DRIVERS} - {only}})
    seed = config.getoption("--rotate")
    if seed is not None:
        _take_out(config, items, set(rotation.left_out(items, seed, config.getoption("--one-in"))))
    if config.getoption("--without-pure"):
        _take_out(config, items, {item for item in items if is_pure(item.path)})
    services = Services(say=_say(config))
    config.stash[SERVICES_OF_RUN] = services
    impossible = {item: reason for item in items for reason in (_why_impossible(item, services),) if reason is not None}
    _take_out(config, items, set(impossible))
    counted = config.stash.setdefault(DESELECTED, {})
    for reason in impossible.values():
        counted[reason] = counted.get(reason, 0) + 1


def _take_out(config: pytest.Config, items: list[pytest.Item], unwanted: set[pytest.Item]) -> None:
    if unwanted:
        items[:] = [item for item in items if item not in unwanted]
        config.hook.pytest_deselected(items=[*unwanted])


def _say(config: pytest.Config) -> Say:
    """Onto the terminal, past the capture of a test's output."""

    def say(line: str) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(line, flush=True)

    return say


def _why_impossible(item: pytest.Item, services: Services) -> str | None:
    given = [SERVICES[name] for name in names_of(_pairs_of(item)) if services.is_given(name)]
    if given and item.get_closest_marker("controls_services"):
        return f"would stop or pause a server that {given[0].variable} names"
    if item.get_closest_marker("needs_tls"):
        for offer in given:
            if not offer.is_database and offer.tls_variable not in os.environ:
                return f"needs TLS to the broker, for which {offer.tls_variable} is not set"
    return None


def _pairs_of(item: pytest.Item) -> list[str]:
    callspec = getattr(item, "callspec", None)
    return [callspec.params["pair"]] if callspec is not None and "pair" in callspec.params else []


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end; the searches for garbage, a fifth of a run, leave it out."""
    gc.collect()
    gc.freeze()


def pytest_runtestloop(session: pytest.Session) -> None:
    """Start, side by side and once, what the selected tests will ask for."""
    if session.config.option.collectonly or session.testsfailed:
        return
    wanted = dict.fromkeys(name for item in session.items for name in names_of(_pairs_of(item)))
    try:
        session.config.stash[SERVICES_OF_RUN].start(wanted)
    except ServiceError as error:
        pytest.exit(f"the services of this run could not be had.\n{error}", returncode=pytest.ExitCode.USAGE_ERROR)


def pytest_unconfigure(config: pytest.Config) -> None:
    services = config.stash.get(SERVICES_OF_RUN, None)
    if services is not None:
        services.close()


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter", config: pytest.Config) -> None:
    for reason, count in config.stash.get(DESELECTED, {}).items():
        terminalreporter.write_line(f"NOT RUN: {count} tests, each {reason}", red=True, bold=True)
    services = config.stash.get(SERVICES_OF_RUN, None)
    if services is not None and services.warning:
        terminalreporter.write_sep("!", red=True, bold=True)
        terminalreporter.write_line(services.warning, red=True, bold=True)
        terminalreporter.write_sep("!", red=True, bold=True)


@pytest.fixture
def services(request: pytest.FixtureRequest) -> Services:
    return request.config.stash[SERVICES_OF_RUN]


@pytest.fixture
def pair(request: pytest.FixtureRequest, services: Services) -> Iterator[Pair]:
    """Both pairs in turn: a database of this test's own, and a broker on which it takes `pair.unique` names.

    Whatever the test does to the servers, they serve again afterwards.
    """
    names = PAIRS[request.param]
    database, broker = services[names.database], services[names.broker]
    made = Pair(request.param, database, broker, create_schema(database, request.node.name), driver_of(request.node))
    yield made
    for service in (database, broker):
        if service.is_ours:
            with suppress(ServiceError):
                service.resume()
            service.start()
    drop_schema(database, made.schema)
    asyncio.run(delete_names(made))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the workers that a test starts run on a loop that is drawn for it; a failure says on which."""
    if item.get_closest_marker("unit") or item.get_closest_marker("architecture"):
        os.environ.pop(LOOP_VARIABLE, None)
        return
    seed = item.config.getoption("--rotate") or 0
    found = LOOPS[rotation.number_of(seed, f"loop {item.nodeid}") % len(LOOPS)]
    os.environ[LOOP_VARIABLE] = found
    item.add_report_section("setup", "loop", f"workers ran on {found}")


def driver_of(item: pytest.Item) -> Driver:
    """Over which driver a test runs: the one it was collected with, or was asked for, or else one that is drawn.

    So half of the tests that do not care run over either, and under each seed others; a failure says over which.
    """
    asked = _given_driver(item) or item.config.getoption("--driver")
    seed = item.config.getoption("--rotate") or 0
    found = asked or DRIVERS[rotation.number_of(seed, item.nodeid) % len(DRIVERS)]
    item.add_report_section("setup", "driver", f"the database was reached over {found}")
    return cast("Driver", found)


def _given_driver(item: pytest.Item) -> Any:
    """The driver among the parameters of a test, where there is one."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("driver") if callspec is not None else None


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Driver:
    return cast("Driver", request.param)
