"""The demo for Fetcher with workers that believe everybody: its verdict must be red.

    from tests.acceptance.trusting_demo import main; main("--events", "60", …)

No option of the product leads here.
"""

from pathlib import Path

from inbox.adapters.embedded import SQLite, SQLiteQueue, SQLiteQueueSettings
from inbox.app import Inbox
from inbox.cli import demo as command
from inbox.cli.main import app
from inbox.demo.board import Board
from inbox.demo.fetcher import JobBookkeeping
from inbox.demo.ledger import CONSUMER, SETTINGS, Ledger
from inbox.demo.stage import Stage, enlist
from inbox.fetcher import job_event_settings


def trusting(folder: str, key: bytes, board: Board, place: int) -> Inbox:
    """Leaves the verifier out: whoever comes first has the id."""
    here = Path(folder)
    queue = SQLiteQueue(here / "queue.db", SQLiteQueueSettings(lease=0.6))
    settings = job_event_settings(SETTINGS)
    inbox = Inbox(CONSUMER, store=SQLite(here / "business.db"), transport=queue, settings=settings)
    inbox.add_service(JobBookkeeping(Ledger()))
    return enlist(inbox, board, place)


def main(*words: str) -> None:
    """`inbox demo --fetcher <words>`, with other workers."""
    right = command._stage

    def broken(database: str | None, broker: str | None, key: bytes | None = None) -> Stage:
        stage = right(database, broker, key)
        stage.factory = trusting
        return stage

    command._stage = broken
    app(["demo", "--fetcher", *words])
