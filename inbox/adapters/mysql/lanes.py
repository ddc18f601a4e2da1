"""The lanes of `inbox.units.lanes`, by the name that this adapter knows them under."""

from inbox.units.lanes import LanePool

__all__ = ["LanePool"]
