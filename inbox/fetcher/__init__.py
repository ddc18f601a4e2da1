"""One provider's events: those of Fetcher's jobs. `docs/fetcher.md` says what they are and what they promise.

Needs ports, configuration and core only; nothing below knows it.
"""

__all__: list[str] = []
