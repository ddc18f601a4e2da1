"""Servers that someone else runs, named by DSNs in the environment."""

import os
from pathlib import Path
from typing import NoReturn

from tests.services.catalog import Offer
from tests.services.service import Service, ServiceError, ServiceNotOursError, Tls


class GivenService(Service):
    """Used as it is, never started or stopped."""

    @property
    def is_ours(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        self._refuse("stop")

    def kill9(self) -> None:
        self._refuse("kill")

    def pause(self) -> None:
        self._refuse("pause")

    def resume(self) -> None:
        self._refuse("resume")

    def control(self, *arguments: str) -> str:
        self._refuse(arguments[0])

    def _refuse(self, verb: str) -> NoReturn:
        raise ServiceNotOursError(
            f"cannot {verb} {self.name}: it is given by {self.offer.variable}; unset it and the run starts its own"
        )


def given_service(offer: Offer) -> GivenService:
    dsn = os.environ.get(offer.variable)
    if not dsn:
        raise ServiceError(f"{offer.variable} is not set")
    tls_dsn, authority = os.environ.get(offer.tls_variable), os.environ.get("INBOX_TLS_AUTHORITY")
    tls = Tls(tls_dsn, Path(authority)) if tls_dsn and authority else None
    return GivenService(offer, dsn, tls=tls)
