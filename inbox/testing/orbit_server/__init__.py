"""A reference server of the subscription protocol `orbit.events.v1`, for tests and for trying. Needs the extra
`orbit-server`.

What it takes the provider's description to mean is written down in docs/orbit.md.
"""

from inbox.testing.orbit_server.provider import check_queue
from inbox.testing.orbit_server.rules import Terms
from inbox.testing.orbit_server.server import OrbitServer
from inbox.testing.orbit_server.settings import OrbitServerSettings
from inbox.testing.orbit_server.switches import Act, Moment, Switch
from inbox.testing.orbit_server.wire import Cut

__all__ = ["Act", "Cut", "Moment", "OrbitServer", "OrbitServerSettings", "Switch", "Terms", "check_queue"]
