"""The rules, without I/O: standard library only, no await, no clock, no logging."""
