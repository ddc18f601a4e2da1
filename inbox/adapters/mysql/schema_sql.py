"""What is asked of the server about the tables: SQL as text, pinned by a test.

Everything here works with nothing but `SELECT` on the inbox's own tables: `information_schema` shows a user what the
user has any right on (MySQL manual, "INFORMATION_SCHEMA Tables", Privileges; MariaDB knowledge base, the same), and
`SHOW VARIABLES` needs no right at all. Triggers show only to a user with the TRIGGER right.

The database's name is bound as a value and not written as `DATABASE()` in these queries: MariaDB opens the tables of
*one* database only where the name is a constant (knowledge base, "Information Schema Optimizations").
Columns have aliases because the two servers do not agree on the case of their names.
"""

from __future__ import annotations

from typing import Final

SERVER: Final = """
SELECT VERSION() AS version, DATABASE() AS current_database, @@SESSION.sql_mode AS sql_mode
"""

VARIABLES: Final = """
SHOW GLOBAL VARIABLES
WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'sync_binlog', 'log_bin',
                        'binlog_format', 'lower_case_table_names')
"""

# What exists. Asked by itself: any further column of a view whose table is gone makes the server warn (1356), and the
# drivers turn that into a Python warning.
KINDS: Final = """
SELECT TABLE_NAME AS table_name, TABLE_TYPE AS table_type
  FROM information_schema.TABLES
 WHERE TABLE_SCHEMA = :database AND TABLE_NAME IN :names
"""

TABLES: Final = """
SELECT TABLE_NAME AS table_name, ENGINE AS engine, ROW_FORMAT AS row_format, TABLE_COLLATION AS collation
  FROM information_schema.TABLES
 WHERE TABLE_SCHEMA = :database AND TABLE_NAME IN :names
"""

COLUMNS: Final = """
SELECT TABLE_NAME AS table_name, COLUMN_NAME AS name, COLUMN_TYPE AS type, IS_NULLABLE AS nullable,
       COLUMN_DEFAULT AS default_value, EXTRA AS extra, CHARACTER_SET_NAME AS charset, COLLATION_NAME AS collation,
       GENERATION_EXPRESSION AS expression
  FROM information_schema.COLUMNS
 WHERE TABLE_SCHEMA = :database AND TABLE_NAME IN :names
 ORDER BY TABLE_NAME, ORDINAL_POSITION
"""

# An index that the optimizer may not use has another word on each server (MySQL 8.0; MariaDB 10.6).
_INDEXES: Final = """
SELECT TABLE_NAME AS table_name, INDEX_NAME AS name, NON_UNIQUE AS non_unique, COLUMN_NAME AS column_name,
       SUB_PART AS prefix_octets, {usable} AS usable
  FROM information_schema.STATISTICS
 WHERE TABLE_SCHEMA = :database AND TABLE_NAME IN :names
 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""
INDEXES_MYSQL: Final = _INDEXES.format(usable="IS_VISIBLE = 'YES'")
INDEXES_MARIADB: Final = _INDEXES.format(usable="IGNORED = 'NO'")

TRIGGERS: Final = """
SELECT EVENT_OBJECT_TABLE AS table_name, TRIGGER_NAME AS name, EVENT_MANIPULATION AS event
  FROM information_schema.TRIGGERS
 WHERE EVENT_OBJECT_SCHEMA = :database AND EVENT_OBJECT_TABLE IN :names
 ORDER BY TRIGGER_NAME
"""

VIEWS: Final = """
SELECT TABLE_NAME AS table_name, SECURITY_TYPE AS security, VIEW_DEFINITION AS definition
  FROM information_schema.VIEWS
 WHERE TABLE_SCHEMA = :database AND TABLE_NAME IN :names
"""

# Tables of the handlers that cannot be rolled back: their share of an effect stays when the unit is undone.
NON_TRANSACTIONAL: Final = """
SELECT t.TABLE_NAME AS table_name, t.ENGINE AS engine
  FROM information_schema.TABLES t
  JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE
 WHERE t.TABLE_SCHEMA = :database AND t.TABLE_TYPE = 'BASE TABLE' AND e.TRANSACTIONS = 'NO'
 ORDER BY t.TABLE_NAME
 LIMIT 6
"""

VERSIONS: Final = "SELECT version FROM {schema} ORDER BY version"

TAKE_LOCK: Final = "SELECT GET_LOCK(:name, :seconds)"
RELEASE_LOCK: Final = "SELECT RELEASE_LOCK(:name)"
