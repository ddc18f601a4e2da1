"""The crash laboratory: is *your* handler safe? It kills workers of your own `module:inbox`, in place, and compares.

    from inbox.testing.lab import Lab

    with Lab("billing.app:inbox") as lab:
        lab.begin()
        lab.kill_at("after:commit")
        lab.publish(event)
        lab.settled()
        lab.assert_same_as_quiet_run()

The fixtures of `inbox.testing.plugin` and the command `inbox crash-test` stand on it; `MemoryLab` is for unit tests of
handlers, without servers and processes.
"""

from inbox.testing.lab.comparison import Difference, Observation
from inbox.testing.lab.database import LabError
from inbox.testing.lab.events import EventLike
from inbox.testing.lab.lab import Lab
from inbox.testing.lab.matrix import Matrix, Result, Scenario
from inbox.testing.lab.memory import Delivered, MemoryLab

__all__ = [
    "Delivered",
    "Difference",
    "EventLike",
    "Lab",
    "LabError",
    "Matrix",
    "MemoryLab",
    "Observation",
    "Result",
    "Scenario",
]
