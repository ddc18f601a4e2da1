"""The handler dies between COMMIT and acknowledgement, its event is delivered again, and its effect is there once."""

import json
import subprocess
import sys
import time
from uuid import uuid4

from sqlalchemy import Connection, text

from inbox import env
from inbox.core.crashpoints import CrashPoint
from inbox.testing.crash import CrashWorker

from .ledger import make_inbox


def test_killed_between_commit_and_acknowledgement(database: Connection, queue: str) -> None:
    payment, later = str(uuid4()), str(uuid4())
    victim = CrashWorker(make_inbox, (queue,), crash=CrashPoint.parse("after:commit"))
    victim.start()
    victim.wait_ready()
    publish(payment, queue)
    victim.wait_killed()  # by SIGKILL, at that point and at no other
    assert entries(database, payment) == 1

    survivor = CrashWorker(make_inbox, (queue,))  # which gets what was not acknowledged
    survivor.start()
    survivor.wait_ready()
    publish(later, queue)  # comes behind it
    while entries(database, later) == 0:
        assert survivor.is_alive()
        time.sleep(0.05)
    assert survivor.stop() == 0
    assert entries(database, payment) == 1


def publish(payment: str, queue: str) -> None:
    event = {"specversion": "1.0", "id": payment, "source": "/bank", "type": "payment.made"}
    line = json.dumps(event | {"data": {"payment": payment}})
    words = ["publish", "--broker", env("LEDGER_AMQP_URL"), "--exchange", "", "--routing-key", queue, "-"]
    subprocess.run([sys.executable, "-m", "inbox", *words], input=line, text=True, check=True)


def entries(database: Connection, payment: str) -> int:
    return len(database.execute(text("SELECT 1 FROM entry WHERE payment = :payment"), {"payment": payment}).all())
