"""The store on MySQL and MariaDB."""

from inbox.adapters.mysql.store import MySQL, MySQLStore

__all__ = ["MySQL", "MySQLStore"]
