"""Settling on one channel: which acknowledgements may travel together, and who writes them.

A delivery tag belongs to the channel that delivered it and counts up by one from 1 (AMQP 0-9-1, basic.deliver:
"The delivery tag is valid only within the channel from which the message was received"). `basic.ack` with
`multiple` settles every tag up to its own, so it may be sent only up to the end of the longest run of tags, from
the first, of which each one is settled. `Tags` knows that run; `Settler` writes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiormq.abc import AbstractChannel


@dataclass(frozen=True, slots=True)
class Settlement:
    """One frame to write."""

    kind: Literal["ack", "release"]
    tag: int
    multiple: bool = False


class Tags:
    """The tags of one channel: delivered, settled, and told to the broker. No I/O.

    Args:
        coalesce: whether `multiple` may be used.
    """

    def __init__(self, *, coalesce: bool) -> None:
        self._coalesce = coalesce
        self._newest = 0
        self._floor = 0  # every tag up to here has been told to the broker
        self._told: set[int] = set()  # told ahead of the floor
        self._acks: set[int] = set()
        self._releases: list[int] = []

    @property
    def waiting(self) -> int:
        """Settled, and not yet told to the broker."""
        return len(self._acks) + len(self._releases)

    @property
    def open(self) -> int:
        """Delivered and not settled."""
        return self._newest - self._floor - len(self._told) - self.waiting

    def delivered(self, tag: int) -> None:
        """A delivery arrived under `tag`."""
        self._newest = max(self._newest, tag)

    def acknowledge(self, tag: int) -> bool:
        """Settle for good. False where it was settled before, or never delivered here."""
        if not self._is_open(tag):
            return False
        self._acks.add(tag)
        return True

    def release(self, tag: int) -> bool:
        """Hand back. False as for `acknowledge`."""
        if not self._is_open(tag):
            return False
        self._releases.append(tag)
        return True

    def take(self) -> list[Settlement]:
        """What is to be written now, in this order; afterwards it counts as told."""
        frames = [Settlement("release", tag) for tag in self._releases]
        self._told.update(self._releases)
        self._releases.clear()
        run = self._settled_run() if self._coalesce else []
        if len(run) > 1:
            # The run's last acknowledged tag, for the broker refuses a tag that it no longer knows.
            frames.append(Settlement("ack", run[-1], multiple=True))
        else:
            run = []
        frames += [Settlement("ack", tag) for tag in sorted(self._acks.difference(run))]
        self._told |= self._acks
        self._acks.clear()
        self._raise_floor()
        return frames

    def _is_open(self, tag: int) -> bool:
        is_known = self._floor < tag <= self._newest and tag not in self._told
        return is_known and tag not in self._acks and tag not in self._releases

    def _settled_run(self) -> list[int]:
        """Acknowledged tags of the longest run above the floor in which every tag is settled."""
        run, tag = [], self._floor + 1
        while tag in self._acks or tag in self._told:
            if tag in self._acks:
                run.append(tag)
            tag += 1
        return run

    def _raise_floor(self) -> None:
        while self._floor + 1 in self._told:
            self._floor += 1
            self._told.discard(self._floor)


class Settler:
    """Writes the settlements of one channel, a few at a time, in a task of its own.

    Args:
        channel: the channel that delivers.
        prefetch: its prefetch.
        coalesce: whether acknowledgements may travel together.
        linger: seconds an acknowledgement may wait for company. It waits only while there is
            something else in hand and less than a quarter of the prefetch is waiting, so a slow
            acknowledgement never starves the consumer.
        late: called with the number of settlements that came or were still waiting after the
            channel's end; the inbox knows those events when they come again.
    """

    def __init__(
        self, channel: AbstractChannel, *, prefetch: int, coalesce: bool, linger: float, late: Callable[[int], None]
    ) -> None:
        self._channel = channel
        self._tags = Tags(coalesce=coalesce)
        self._enough = max(1, prefetch // 4)
        self._linger = linger if coalesce else 0.0
        self._late = late
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        # Frames of two writers could pass each other, and the broker refuses a tag that another frame has covered.
        self._pen = asyncio.Lock()
        self._task = asyncio.create_task(self._write())

    def delivered(self, tag: int) -> None:
        """A delivery arrived under `tag`."""
        self._tags.delivered(tag)

    async def acknowledge(self, tag: int) -> bool:
        """Settle `tag` for good; False where its channel is gone or it was settled before."""
        is_settled = self._settle(self._tags.acknowledge, tag)
        if is_settled and self._tags.open == 0 and not self._pen.locked():
            # Nothing is in hand that could travel along: an event alone does not wait for the writing task's turns.
            await self._write_waiting()
        return is_settled

    def release(self, tag: int) -> bool:
        """Hand `tag` back to the queue; returns as `acknowledge` does."""
        return self._settle(self._tags.release, tag, at_once=True)

    async def wait_flushed(self) -> None:
        """Return when everything settled so far has been handed to the connection, or is lost with it."""
        if self._tags.waiting and not self._closed:
            self._wake.set()
        await self._flushed.wait()

    def close(self) -> None:
        """The channel is gone. What was not written is late; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._forget_timer()
        if self._tags.waiting:
            self._late(self._tags.waiting)
        self._flushed.set()
        self._task.cancel()

    def _settle(self, settle: Callable[[int], bool], tag: int, *, at_once: bool = False) -> bool:
        if self._closed:
            self._late(1)
            return False
        if not settle(tag):
            return False
        self._flushed.clear()
        if at_once or self._linger == 0 or self._tags.waiting >= self._enough:
            self._wake.set()
        elif self._tags.open == 0 and self._pen.locked():
            self._wake.set()  # behind what is being written
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._linger, self._wake.set)
        return True

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            # One turn of the loop, so that what other tasks settle in it travels along.
            await asyncio.sleep(0)
            self._wake.clear()
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        async with self._pen:
            self._forget_timer()
            try:
                for frame in self._tags.take():
                    try:
                        await self._send(frame)
                    except Exception:  # noqa: BLE001 - the channel is gone; whoever watches it says so
                        self._late(1)
            finally:  # also where the lane that writes is cancelled: the broker hands out again what it was not told
                if not self._tags.waiting:
                    self._flushed.set()

    async def _send(self, frame: Settlement) -> None:
        # Without waiting for the socket to drain: there are at most `prefetch` of these small frames.
        if frame.kind == "ack":
            await self._channel.basic_ack(frame.tag, multiple=frame.multiple, wait=False)
        else:
            await self._channel.basic_nack(frame.tag, requeue=True, wait=False)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
