"""What every store promises: the sentences of `inbox.ports.Store` and `UnitOfWork`, one test each.

An adapter runs the whole suite. It subclasses `StoreConformance` in its tests and gives it a fixture `rig`:

```python
class TestMySQL(StoreConformance):
    @pytest.fixture
    def rig(self, database) -> StoreRig: ...
```

The tests are coroutines, so pytest needs a plugin that runs them.
"""

from __future__ import annotations

from inbox.testing.conformance.store_batches import BatchConformance
from inbox.testing.conformance.store_beside import AttemptConformance, LifeConformance, QuarantineConformance
from inbox.testing.conformance.store_desk import DeskConformance
from inbox.testing.conformance.store_figures import FiguresConformance
from inbox.testing.conformance.store_rig import Quarantined, StoreRig, delivery, event, handler, opened, record
from inbox.testing.conformance.store_units import RaceConformance, UnitConformance

__all__ = ["Quarantined", "StoreConformance", "StoreRig", "delivery", "event", "handler", "opened", "record"]


class StoreConformance(
    UnitConformance,
    RaceConformance,
    BatchConformance,
    LifeConformance,
    AttemptConformance,
    QuarantineConformance,
    DeskConformance,
    FiguresConformance,
):
    """The whole suite."""
