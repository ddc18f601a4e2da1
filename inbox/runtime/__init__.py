"""The engine at work: it tells the core what happened and carries out what the core says."""
