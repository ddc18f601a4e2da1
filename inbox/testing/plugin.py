"""The laboratory as a pytest plugin. Every pytest run on a machine loads this, so it imports nothing before it is used.

    def test_a_payment_is_entered_once(publish, kill_at, settled, assert_effect_once):
        kill_at("after:commit")
        publish({"id": "p-1", "type": "payment.made", "data": {}})
        settled()
        assert_effect_once("SELECT * FROM entry WHERE payment = 'p-1'")

An installation has this file as the module `inbox_pytest`, and that is what pytest loads: importing the package
`inbox` would cost every run the import of SQLAlchemy. Nothing here depends on a plugin for asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inbox.core.crashpoints import CrashPoint
    from inbox.testing.lab import Lab, MemoryLab
    from inbox.testing.lab.marks import Reached

#: In pytest's list stands by this name which copy of this file came first.
_FIRST = "inbox options"
#: Stands for this copy there. Not the module, which pytest registers itself under another name, and nothing without a
#: hash: pytest 8.3 puts each plugin into a set, and every run of it would end in an internal error.
_COPY = object()
_MARK = (
    "crash_matrix(points=None, workers=1, event_type=None): run this test once for each point at which a worker can "
    "die; it publishes, waits with settled(), and asserts"
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """What the fixtures are told."""
    if pluginmanager.hasplugin(_FIRST):
        return  # loaded under its other name as well
    pluginmanager.register(_COPY, _FIRST)
    group = parser.getgroup("inbox", "crash laboratory of inbox")
    group.addoption("--inbox-target", metavar="MODULE:ATTRIBUTE", help="the Inbox whose workers are killed")
    group.addoption(
        "--inbox-disposable", action="store_true", help="everything in its database and queue may be deleted"
    )
    group.addoption(
        "--inbox-strict", action="store_true", help="a point that a crash_matrix test does not reach is a failure"
    )
    parser.addini("inbox_target", "module:attribute of the Inbox whose workers are killed")
    parser.addini("inbox_disposable", "everything in its database and queue may be deleted", "bool", default=False)
    parser.addini("inbox_strict", "a point that a crash_matrix test does not reach is a failure", "bool", default=False)
    parser.addini("inbox_timeout", "seconds for which settled() waits", default="60")
    parser.addini("inbox_http", "variables that are to name HTTP servers of the lab's", "args", default=[])


def _is_first(config: pytest.Config) -> bool:
    """Whether this is the copy that acts, where the plugin is loaded under both of its names."""
    return config.pluginmanager.get_plugin(_FIRST) is _COPY


def pytest_configure(config: pytest.Config) -> None:
    """The mark."""
    config.addinivalue_line("markers", _MARK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each crash point."""
    if _is_first(metafunc.config) and next(metafunc.definition.iter_markers("crash_matrix"), None) is not None:
        from inbox.testing.lab.marks import spread  # noqa: PLC0415 - see the module's first line

        spread(metafunc)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which points were reached, whatever the tests said of them."""
    for line in getattr(config, "_inbox_reached", {}).values() if _is_first(config) else ():
        terminalreporter.write_line(str(line))


# ------------------------------------------------------------------ fixtures
@pytest.fixture(scope="session")
def inbox_target(pytestconfig: pytest.Config) -> str:
    """`module:attribute`; override it in a conftest.py where something has to be made first."""
    target = pytestconfig.getoption("--inbox-target") or pytestconfig.getini("inbox_target")
    if not target:
        raise pytest.UsageError("say which Inbox: `inbox_target = billing.app:inbox` under [pytest], or --inbox-target")
    return str(target)


@pytest.fixture(scope="session")
def inbox_lab_opened(pytestconfig: pytest.Config, inbox_target: str) -> Iterator[Lab]:
    """The laboratory of the whole run: what is in the database when it is opened is put back before each test."""
    from inbox.testing.lab import Lab  # noqa: PLC0415 - see the module's first line

    lab = Lab(
        inbox_target,
        disposable=pytestconfig.getoption("--inbox-disposable") or pytestconfig.getini("inbox_disposable"),
        timeout=float(pytestconfig.getini("inbox_timeout")),
        http=pytestconfig.getini("inbox_http"),
    )
    with lab:
        yield lab


@pytest.fixture
def inbox_point(request: pytest.FixtureRequest) -> CrashPoint | None:
    """Where `crash_matrix` kills in this test; None without it."""
    point: CrashPoint | None = getattr(request, "param", None)
    return point


@pytest.fixture
def inbox_lab(request: pytest.FixtureRequest, inbox_lab_opened: Lab, inbox_point: CrashPoint | None) -> Iterator[Lab]:
    """The laboratory, at the beginning of a scenario."""
    from inbox.testing.lab.marks import scenario  # noqa: PLC0415 - see the module's first line

    reached: dict[str, Reached] = getattr(request.config, "_inbox_reached", {})
    request.config._inbox_reached = reached  # type: ignore[attr-defined]  # noqa: SLF001 - a place of ours in it
    with scenario(request, inbox_lab_opened, inbox_point, reached):
        yield inbox_lab_opened


@pytest.fixture
def publish(inbox_lab: Lab) -> Callable[..., None]:
    """See `Lab.publish`."""
    return inbox_lab.publish


@pytest.fixture
def redeliver(inbox_lab: Lab) -> Callable[..., None]:
    """See `Lab.redeliver`."""
    return inbox_lab.redeliver


@pytest.fixture
def kill_at(inbox_lab: Lab) -> Callable[..., None]:
    """See `Lab.kill_at`."""
    return inbox_lab.kill_at


@pytest.fixture
def settled(inbox_lab: Lab) -> Callable[..., None]:
    """See `Lab.settled`."""
    return inbox_lab.settled


@pytest.fixture
def effects(inbox_lab: Lab) -> Callable[..., list[tuple[object, ...]]]:
    """See `Lab.effects`."""
    return inbox_lab.effects


@pytest.fixture
def assert_effect_once(inbox_lab: Lab) -> Callable[..., None]:
    """See `Lab.assert_effect_once`."""
    return inbox_lab.assert_effect_once


@pytest.fixture
def assert_same_as_quiet_run(inbox_lab: Lab) -> Callable[..., None]:
    """See `Lab.assert_same_as_quiet_run`."""
    return inbox_lab.assert_same_as_quiet_run


@pytest.fixture
def inbox_memory_lab(inbox_target: str) -> Iterator[MemoryLab]:
    """For `await inbox_memory_lab.deliver(event)`, without servers; see `MemoryLab`."""
    from inbox.testing.lab import MemoryLab  # noqa: PLC0415 - see the module's first line

    with MemoryLab(inbox_target) as lab:
        yield lab
