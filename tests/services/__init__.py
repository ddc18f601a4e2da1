"""The databases and brokers that the tests run against: found, started, handed out and stopped again."""

from tests.services.catalog import PAIRS, SERVICES, Offer, PairNames
from tests.services.service import Service, ServiceError, ServiceNotOursError

__all__ = ["PAIRS", "SERVICES", "Offer", "PairNames", "Service", "ServiceError", "ServiceNotOursError"]
