"""Events that a platform leases over a WebSocket: the subscription protocol `orbit.events.v1`."""
