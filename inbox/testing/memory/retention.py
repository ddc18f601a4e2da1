"""Deleting what is old from tables in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inbox.core.quarantine import QuarantineState
from inbox.core.retention import Pruned

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any

    from inbox.testing.memory.quarantine import MemoryQuarantined
    from inbox.testing.memory.store import MemoryTables


def prune(
    tables: MemoryTables, cut_off: datetime, batch: int, progress: Callable[[Pruned], bool], *, dry_run: bool
) -> Pruned:
    """As `ports.Store.prune`: everything of `tables` that is older than `cut_off`."""
    refused = {entry.record_key for entry in tables.quarantine.values() if not _is_decided(entry, cut_off)}
    old = [key for key in tables.rows if tables.times["inbox", key] < cut_off]
    plan: list[tuple[str, dict[Any, Any], list[Any]]] = [
        ("quarantine", tables.quarantine, [d for d, entry in tables.quarantine.items() if _is_decided(entry, cut_off)]),
        ("inbox", tables.rows, [key for key in old if key not in refused]),
        ("attempts", tables.attempts, [k for k in tables.attempts if tables.times["last attempt", k] < cut_off]),
        ("workers", tables.workers, [key for key, (_, _, seen_at) in tables.workers.items() if seen_at < cut_off]),
    ]
    done = Pruned(kept=sum(key in refused for key in old))
    for counts, rows, keys in plan:
        for start in range(0, len(keys), batch):
            part = keys[start : start + batch]
            if not dry_run:
                for key in part:
                    del rows[key]
                    if rows is tables.attempts:
                        tables.open_starts.pop(key, None)
            done = replace(done, **{counts: getattr(done, counts) + len(part)})
            if not progress(done):
                return replace(done, is_complete=False)
    return done


def _is_decided(entry: MemoryQuarantined, cut_off: datetime) -> bool:
    """Whether somebody decided about it, and before `cut_off`."""
    return entry.state is not QuarantineState.OPEN and entry.state_at is not None and entry.state_at < cut_off
