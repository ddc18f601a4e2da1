"""Which combinations of a test run: with a seed one of each, so that every test and every kill point runs in every run.

With `--rotate SEED` a test on servers runs on one of its pairs, over one of its drivers, drawn by the seed; another
seed draws others. Tests that are marked `rotates_with(name)` are one test of that name, with several subjects, on
servers or not. Of one that is marked `drawn(3)` only three combinations run under a seed, and none with 0. Without
the option every one runs.

`--one-in 3` draws a third of the tests besides, and leaves out the others whole; every conformance test runs.
"""

import hashlib
from collections import defaultdict

import pytest

#: What takes turns.
SERVERS = "pair"
DRIVER = "driver"
DRAWN = "drawn"
SUBJECT = "rotates_with"
#: What `--one-in` spares.
WHOLE = "conformance"


def left_out(items: list[pytest.Item], seed: int, one_in: int = 1) -> list[pytest.Item]:
    """Those that do not run under this seed: of each test's pairs and drivers all but one, and what was not drawn."""
    others = [
        item
        for item in items
        if number_of(seed, f"one in {_without(item, _turns_of(item))}") % one_in
        and item.get_closest_marker(WHOLE) is None
    ]
    thin = set(map(id, others))
    return others + _left_out([item for item in items if id(item) not in thin], seed)


def _left_out(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    rounds: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        callspec = getattr(item, "callspec", None)
        is_subject = item.get_closest_marker(SUBJECT) is not None
        if callspec is not None and (SERVERS in callspec.params or is_subject):
            rounds[_without(item, _turns_of(item))].append(item)
    out = [item for key, round_ in rounds.items() for item in round_ if item is not _drawn(round_, seed, key)]
    return out + _not_drawn(items, {id(item) for item in out}, seed)


def _not_drawn(items: list[pytest.Item], out: set[int], seed: int) -> list[pytest.Item]:
    """Of each test that lets only so many of its combinations run, the others."""
    tests: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if id(item) not in out and item.get_closest_marker(DRAWN) is not None:
            tests[item.nodeid.partition("[")[0]].append(item)
    left = []
    for combinations in tests.values():
        marker = combinations[0].get_closest_marker(DRAWN)
        assert marker is not None
        left += sorted(combinations, key=lambda item: number_of(seed, item.nodeid))[marker.args[0] :]
    return left


def _turns_of(item: pytest.Item) -> set[str]:
    """What takes turns among the parameters of a test."""
    callspec = getattr(item, "callspec", None)
    return {str(callspec.params[name]) for name in (SERVERS, DRIVER) if name in callspec.params} if callspec else set()


def _without(item: pytest.Item, turns: set[str]) -> str:
    """The test's name without what takes turns."""
    test, _, parameters = item.nodeid.partition("[")
    if (marker := item.get_closest_marker(SUBJECT)) is not None:
        test = marker.args[0]
    return f"{test}[{'-'.join(part for part in parameters.rstrip(']').split('-') if part not in turns)}]"


def _drawn(round_: list[pytest.Item], seed: int, key: str) -> pytest.Item:
    return round_[number_of(seed, key) % len(round_)]


def number_of(seed: int, key: str) -> int:
    """Some number, always the same one for this key under this seed."""
    return int.from_bytes(hashlib.sha256(f"{seed} {key}".encode()).digest()[:8])
