"""The mutations: which text becomes which, and who finds it. Each text stands in its file exactly once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hunk:
    """One change to one file of the package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """A mistake.

    Attributes:
        name: what it is called.
        harm: what comes of it.
        hunks: the mistake itself.
        test: the cheapest test on real servers that fails because of it, by its pytest id, less the pair.
    """

    name: str
    harm: str
    hunks: tuple[Hunk, ...]
    test: str

    def __str__(self) -> str:
        return self.name


_PROCESSOR = "inbox/runtime/processor.py"
_UNIT = "inbox/adapters/mysql/unit.py"
_OUTSIDE = "tests/crash/test_outside_kills.py"
_UNKNOWN = "tests/integration/test_commit_unknown.py"
_STORE = "tests/conformance/test_mysql_store.py::TestMySQLStore"

MUTATIONS = (
    Mutation(
        "ack-before-commit",
        "a process that dies before its COMMIT arrives has lost the event",
        (
            Hunk(
                _PROCESSOR,
                "        passage.committing, passage.unit = open_unit(passage), None\n        try:\n",
                "        passage.committing, passage.unit = open_unit(passage), None\n"
                "        await self._transport.acknowledge(passage.delivery)\n        try:\n",
            ),
        ),
        f"{_OUTSIDE}::test_what_is_held_on_its_way_is_not_settled[PAIR-apply-is_commit]",
    ),
    Mutation(
        "insert-ignore-in-the-claim",
        "error 1062 becomes a warning: every duplicate is applied again",
        (
            Hunk(
                "inbox/adapters/mysql/statements.py",
                'f"INSERT INTO {self.inbox} (consumer_name',
                'f"INSERT IGNORE INTO {self.inbox} (consumer_name',
            ),
        ),
        f"{_UNKNOWN}::test_the_answer_is_lost[aiomysql-PAIR]",
    ),
    Mutation(
        "guard-lets-commit-pass",
        "a handler commits half of its unit, and what follows goes without its row",
        (
            Hunk(
                "inbox/adapters/mysql/screen.py",
                'b"SELECT INSERT UPDATE DELETE REPLACE WITH VALUES TABLE DO SHOW',
                'b"SELECT COMMIT INSERT UPDATE DELETE REPLACE WITH VALUES TABLE DO SHOW',
            ),
        ),
        "tests/integration/test_abuses.py::test_abuse[aiomysql-PAIR-cursor executing COMMIT]",
    ),
    Mutation(
        "guard-is-deaf-to-lock-waits",
        "a handler swallows error 1205: the row is committed without the effect",
        (
            Hunk(
                "inbox/adapters/mysql/guard.py",
                "        if trouble is not None:\n",
                "        if trouble is not None and code != 1205:\n",
            ),
        ),
        "tests/integration/test_abuses.py::test_abuse[aiomysql-PAIR-1205 on a row held elsewhere]",
    ),
    Mutation(
        "probe-with-a-plain-select",
        "an unknown commit is called absent while its session is still committing: applied twice",
        (
            Hunk(
                "inbox/adapters/mysql/resolve.py",
                " WHERE consumer_name = %s AND event_id = %s\n  LOCK IN SHARE MODE",
                " WHERE consumer_name = %s AND event_id = %s",
            ),
        ),
        f"{_UNKNOWN}::test_commit_never_arrives_and_the_old_session_lives_behind_a_proxy[aiomysql-PAIR]",
    ),
    Mutation(
        "unknown-commit-is-acknowledged",
        "a commit that never took place is acknowledged: lost",
        (
            Hunk(
                _PROCESSOR,
                "        if resolution is Resolution.COMMITTED:\n",
                "        if resolution is not None:\n",
            ),
        ),
        "tests/crash/test_packet_cuts.py::test_a_commit_that_never_arrives_is_not_acknowledged[PAIR-cut]",
    ),
    Mutation(
        "unresolved-is-committed",
        "what nobody can say is taken for a commit: lost, where the old session ends without one",
        (
            Hunk(
                _PROCESSOR,
                "        if resolution is Resolution.COMMITTED:\n",
                "        if resolution is not Resolution.ABSENT:\n",
            ),
        ),
        "tests/crash/test_packet_cuts.py::test_a_commit_that_never_arrives_is_not_acknowledged[PAIR-swallowed]",
    ),
    Mutation(
        "neighbours-are-charged",
        "whoever ran beside a crasher is charged with it, and put away for it in the end",
        (
            Hunk(
                "inbox/adapters/mysql/attempts.py",
                "* (1 + open_alone)) = 2),\n  history = IF(open_token <> %s AND open_alone = 1,",
                "* (1 + open_alone)) >= 1),\n  history = IF(open_token <> %s,",
            ),
        ),
        f"{_STORE}::test_a_start_that_another_process_left_open_makes_a_suspect_and_costs_nothing[aiomysql-PAIR]",
    ),
    Mutation(
        "starts-are-not-noted",
        "an event that kills its process is never found out: a crash loop without end",
        (
            Hunk(
                _PROCESSOR,
                "        if not passage.is_noted or (passage.start_noted",
                "        if True or not passage.is_noted or (passage.start_noted",
            ),
        ),
        "tests/crash/test_poison.py::test_an_event_that_kills_its_worker_ends_in_quarantine[quorum-PAIR-kill]",
    ),
    Mutation(
        "lock-wait-is-a-duplicate",
        "who waits too long for another's claim is acknowledged, though the other may still roll back: lost",
        (
            Hunk(
                _UNIT,
                "            if facts(error)[0] == _DUPLICATE_KEY:\n",
                "            if facts(error)[0] in (_DUPLICATE_KEY, 1205):\n",
            ),
        ),
        "tests/crash/test_session_kills.py::test_a_claim_that_waits_for_too_long_is_no_duplicate[PAIR]",
    ),
    Mutation(
        "claim-after-the-handler",
        "two deliveries of one event run their handlers side by side, and a known event runs again",
        (
            Hunk(
                _UNIT,
                "            await self.lane.driver.own_done(self._sql.insert(record))\n            if",
                "            self._late = record\n            if",
            ),
            Hunk(
                _UNIT,
                '                await self.lane.driver.own_done(b"COMMIT", ',
                "                await self.lane.driver.own_done(self._sql.insert(self._late))\n"
                '                await self.lane.driver.own_done(b"COMMIT", ',
            ),
        ),
        f"{_UNKNOWN}::test_the_answer_is_lost[aiomysql-PAIR]",
    ),
    Mutation(
        "ack-before-quarantine",
        "a process that dies between the two has dropped the event in silence",
        (
            Hunk(
                _PROCESSOR,
                "            await self._store.quarantine(",
                "            await self._transport.acknowledge(passage.delivery)\n"
                "            await self._store.quarantine(",
            ),
        ),
        f"{_OUTSIDE}::test_what_is_held_on_its_way_is_not_settled[PAIR-reject-is_quarantine]",
    ),
    Mutation(
        "copy-is-not-confirmed",
        "the original is acknowledged for a copy that the broker may never have had: lost",
        (
            Hunk(
                "inbox/adapters/rabbitmq/transport.py",
                "        await outlet.publish(delivery.body,",
                "        self._flying = asyncio.ensure_future(outlet.publish(delivery.body,",
            ),
            Hunk(
                "inbox/adapters/rabbitmq/transport.py",
                "routing_key=retry.name, properties=copy)\n",
                "routing_key=retry.name, properties=copy))\n",
            ),
        ),
        f"{_OUTSIDE}::test_what_is_held_on_its_way_is_not_settled[PAIR-flaky-is_amqp_publish]",
    ),
    Mutation(
        "no-rollback-before-reuse",
        "the next unit on that connection commits what an undone one has left",
        (
            Hunk(
                _UNIT,
                '                    await driver.own_done(b"ROLLBACK")\n                await self._put_back()',
                "                    pass\n                await self._put_back()",
            ),
        ),
        "tests/integration/test_engine_servers.py"
        "::test_odd_handlers_undo_their_units_and_give_their_lanes_back[aiomysql-PAIR]",
    ),
    Mutation(
        "acks-travel-past-what-is-open",
        "one acknowledgement settles a neighbour whose commit is under way: lost, if that fails",
        (
            Hunk(
                "inbox/adapters/rabbitmq/settlement.py",
                "        run = self._settled_run() if self._coalesce else []\n        if len(run) > 1:\n",
                "        run = sorted(self._acks)\n        if run:\n",
            ),
        ),
        f"{_OUTSIDE}::test_the_neighbours_of_what_is_held_do_not_settle_it[PAIR]",
    ),
    Mutation(
        "orphans-hold-their-claims",
        "the session of a worker that stopped keeps its rows locked for eight hours",
        (
            Hunk(
                "inbox/adapters/mysql/drivers.py",
                "math.ceil(deadline) + 5, deadline)",
                "28800, deadline)",
            ),
        ),
        "tests/integration/test_unit.py::test_how_a_session_is_set_up[aiomysql-PAIR]",
    ),
    Mutation(
        "fingerprint-is-not-compared",
        "another event under a known id is skipped as its duplicate",
        (
            Hunk(
                _UNIT,
                "        return Claim.CONFLICT if record.contradicts(*rows[0]) else Claim.DUPLICATE",
                "        return Claim.DUPLICATE",
            ),
        ),
        f"{_STORE}::test_a_known_id_with_other_content_is_a_conflict[aiomysql-PAIR]",
    ),
)
