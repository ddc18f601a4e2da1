"""Proof for your own handlers: crash points, fault proxies, conformance suites. Not imported by the engine."""
