"""A worker's side of a platform that stands in for the target's own: no word of a worker's may go to the real one."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard

from inbox.errors import ConfigurationError

if TYPE_CHECKING:
    from inbox.adapters.websocket import OrbitTransport
    from inbox.app import Inbox
    from inbox.core.delivery import Delivery
    from inbox.ports import Transport

__all__ = ["StandIn", "is_leased", "point_at"]


@dataclass(frozen=True, slots=True, repr=False)
class StandIn:
    """Where a worker goes in the place of the platform that its transport names.

    Attributes:
        url: of the event connections.
        credential: the bearer.
        released: file in which it notes each event whose handler came to nothing: over a lease nothing is sent then.
    """

    url: str
    credential: str
    released: str


def is_leased(transport: Transport | None) -> TypeGuard[OrbitTransport]:
    """Whether it is an `OrbitTransport`, or one of a class that extends it."""
    # Where there is one its module is loaded; to import it here would ask everybody for its extra.
    module = sys.modules.get("inbox.adapters.websocket.transport")
    return module is not None and isinstance(transport, module.OrbitTransport)


def point_at(inbox: Inbox, stand_in: StandIn | None) -> None:
    """Let a leased transport of `inbox` connect to `stand_in`, with its credential; all else of its settings stays.

    Args:
        inbox: of a worker that has not run.
        stand_in: None where the lab knows of no leased transport.

    Raises:
        ConfigurationError: the worker's transport is of another kind than the one that the lab has seen: a target that
            decides that anew each time would take a worker to its real platform.
    """
    transport = inbox.transport
    if is_leased(transport) is (stand_in is None):
        raise ConfigurationError(
            "the target takes another transport in a worker than it took in the lab, so the worker was not started: "
            "let it decide by what both have, such as a variable of the environment"
        )
    if stand_in is None or not is_leased(transport):
        return
    from inbox.adapters.websocket import Credential  # noqa: PLC0415 - needs an extra, which a leased target has

    # In place: whoever keeps the transport for its numbers keeps the one that runs.
    transport._registration = replace(  # noqa: SLF001 - it shows its credential to nobody, and takes no other one
        transport._registration,  # noqa: SLF001 - as above
        url=stand_in.url,
        credential=Credential(stand_in.credential),
    )
    _note_releases(transport, stand_in.released)


def _note_releases(transport: OrbitTransport, path: str) -> None:
    """Let each event that is released be noted, once the transport has let go of it; not before, as a probe would.

    What is in a file outlives a SIGKILL.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    release = transport.release

    async def noting(delivery: Delivery) -> bool:
        is_released = await release(delivery)
        os.write(file, f"{delivery.headers['ce-id']}\n".encode())
        return is_released

    transport.release = noting  # type: ignore[method-assign]
