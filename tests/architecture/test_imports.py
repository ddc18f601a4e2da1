"""Arrows point down: what each part of the package may import."""

import ast
import sys

import pytest

from tests.architecture.modules import Module, modules

# Each part may import itself, what stands below it, and what is named here beside it.
LAYERS: list[dict[str, set[str]]] = [
    {"errors": set(), "core": {"errors"}},
    {"config": set(), "ports": {"config"}, "tables": set(), "schema_files": {"tables"}, "units": set()},
    {
        "app": {"service", "runtime"},
        "service": {"app", "runtime"},
        "runtime": {"app", "service"},
        "adapters.mysql": set(),
        "adapters.rabbitmq": set(),
        "adapters.websocket": set(),
        "adapters.embedded": set(),
        "fetcher": set(),
    },
    {"testing": set(), "dashboard": set(), "demo": {"testing"}, "cli": {"testing", "demo"}},
    {"__main__": set()},
]
LEVELS = {part: level for level, parts in enumerate(LAYERS) for part in parts}

# What the core must not do, by the modules that do it. It is told the time, and told what arrived.
OUTSIDE_WORLD = {
    *("asyncio", "concurrent", "contextvars", "logging", "multiprocessing", "os", "pathlib", "random", "secrets"),
    *("select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading"),
    *("time", "urllib.request", "uuid"),
}
CLOCK_READS = {"now", "utcnow", "today", "fromtimestamp"}


def part_of(module: str) -> str | None:
    """The part that a module belongs to; None for the package itself and for empty folders of parts."""
    name = module.removeprefix("inbox").removeprefix(".")
    if name in {"", "adapters"}:
        return None
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "adapters" else parts[0]


def may_import(part: str, other: str) -> bool:
    beside = LAYERS[LEVELS[part]][part]
    return other == part or LEVELS[other] < LEVELS[part] or other in beside


def by_name(module: Module) -> str:
    return module.name


@pytest.mark.parametrize("module", modules(), ids=by_name)
def test_a_module_belongs_to_a_part_and_imports_point_down(module: Module) -> None:
    part = part_of(module.name)
    if part is None:
        return
    assert part in LEVELS, f"{module.name}: say in LAYERS where {part} stands"
    for imported in module.imports:
        other = part_of(imported) if imported.partition(".")[0] == "inbox" else None
        if other is not None:
            assert other in LEVELS, f"{module.name} imports {imported}: say in LAYERS where {other} stands"
            assert may_import(part, other), f"{module.name} imports {imported}: {part} may not know {other}"


@pytest.mark.parametrize("module", [m for m in modules() if part_of(m.name) in {"core", "errors"}], ids=by_name)
def test_the_core_needs_the_standard_library_only_and_does_no_io(module: Module) -> None:
    for imported in module.imports:
        top = imported.partition(".")[0]
        assert top == "inbox" or top in sys.stdlib_module_names, f"{module.name} imports {imported}"
        assert not {top, imported} & OUTSIDE_WORLD, f"{module.name} imports {imported}: the core has no world outside"
    for node in ast.walk(module.tree):
        place = f"{module.name}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith), f"{place} awaits"
        if isinstance(node, ast.Call):
            assert not (isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input"}), (
                f"{place} does I/O"
            )
            assert not (isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_READS), (
                f"{place} reads a clock"
            )


@pytest.mark.parametrize("module", modules(), ids=by_name)
def test_nothing_that_is_installed_imports_the_tests(module: Module) -> None:
    assert (
        not any(name.partition(".")[0] in {"tests", "pytest"} for name in module.imports)
        or part_of(module.name) == "testing"
    )
