"""Exactly-once database effects for event consumers on MySQL and MariaDB."""
