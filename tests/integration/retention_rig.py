"""A database in which time passes when it is told to."""

from inbox.core.quarantine import QuarantineState
from tests.integration.store_rig import MySQLRig

_TIMES = {
    "inbox": ("processed_at",),
    "inbox_attempt": ("first_at", "last_at", "open_since"),
    "inbox_quarantine": ("first_at", "last_at", "state_at"),
    "inbox_worker": ("started_at", "seen_at"),
}


class MySQLRetentionRig(MySQLRig):
    """See `inbox.testing.conformance.store_retention.RetentionRig`."""

    async def age(self, seconds: float, consumer: str = "billing") -> None:
        for table, columns in _TIMES.items():
            changes = ", ".join(f"{column} = {column} - INTERVAL %(s)s SECOND" for column in columns)
            statement = f"UPDATE {table} SET {changes} WHERE consumer_name = %(c)s"  # noqa: S608 - names of ours
            await self.sql(statement, s=seconds, c=consumer.encode())

    async def decide(self, state: QuarantineState, consumer: str = "billing") -> None:
        await self.sql(
            "UPDATE inbox_quarantine SET state = %(state)s, state_at = UTC_TIMESTAMP(6) WHERE consumer_name = %(c)s",
            state=state.value,
            c=consumer.encode(),
        )
