"""Random histories of brokers that coordinate groups: leaders move, brokers die and return, while clients commit and rebalance.

What must hold, with elections from the ISR only (facts of the protocol, and of KIP-101, KIP-320, KIP-497):

- once a commit is acknowledged, or its offset was returned, the coordinator returns this offset or a later one;
- a leader epoch has at most one leader, so that one coordinator at a time can write;
- an assigned generation is never followed by an older one, and its members stay members while their sessions last;
- when everything is connected again, all groups have one coordinator, and the replicas are equal up to the high watermark.

`python -m tests.groups.failovers` runs many of them; a failure names its seed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.groups.broker_group import BrokerGroup, partition_of
from tests.groups.failover_clients import Broken, Committer, Member, SharedState
from tests.groups.model_controller import ModelController
from tests.log.support import entries
from txbroker.names import OFFSETS_TOPIC

BROKERS = range(1, 4)
PARTITIONS = 2
STEPS = 60


REMOVING = "group %s: removing member %s: %s"


class _Log(logging.Handler):
    """The brokers' log: errors are problems, and it says which members were removed."""

    def __init__(self, shared: SharedState) -> None:
        super().__init__(logging.INFO)
        self._shared = shared

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._shared.group.failed(f"logged: {record.getMessage()}")
        elif record.msg == REMOVING and isinstance(record.args, tuple):
            self._shared.removed.add(str(record.args[1]))


class History:
    """One history. `run` raises Broken."""

    def __init__(self, seed: int, *, loss: float = 0.0) -> None:
        self._seed = seed
        self._random = Random(f"{seed} faults")
        self._group = BrokerGroup(seed, BROKERS, loss=loss)
        self._controller = ModelController(self._group, BROKERS, PARTITIONS)
        self._shared = SharedState(self._group, self._controller)
        self._leaders: dict[tuple[int, int], int] = {}
        self._committers = [Committer(self._shared, f"offsets-{n}", seed) for n in range(4)]
        self._members = [Member(self._shared, f"members-{n % 2}", f"member {n}", seed) for n in range(5)]
        self.done: list[str] = []  # the faults, for the report

    def run(self) -> None:
        """Play the history, then connect everything and check the end."""
        logger = logging.getLogger("txbroker")
        handler, level, propagates = _Log(self._shared), logger.level, logger.propagate
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.INFO)
        try:
            for client in [*self._committers, *self._members]:
                client.start()
            for _ in range(STEPS):
                self._fault()
                self._pass(self._random.choice((0.02, 0.2, 1.0, 3.0)))
            self._heal()
            self._check_end()
        except Broken as error:
            raise Broken(f"seed {self._seed}: {error}\n" + "\n".join(self.done)) from error
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagates

    def _pass(self, seconds: float) -> None:
        end = self._group.reactor.seconds() + seconds
        while self._group.reactor.seconds() < end:
            self._group.reactor.advance(0.01)
            self._check()

    def _check(self) -> None:
        if self._group.problems:
            raise Broken("\n".join(self._group.problems))
        for broker_id, process in self._group.processes.items():
            for partition in process.replicas:
                if partition.is_leader:
                    key = partition.topic_partition.partition, partition.leader_epoch
                    if self._leaders.setdefault(key, broker_id) != broker_id:
                        raise Broken(f"partition {key[0]} has two leaders in epoch {key[1]}: {broker_id}, {self._leaders[key]}")

    # Faults

    def _fault(self) -> None:
        faults = (self._move, self._move, self._kill, self._start, self._isolate, self._deafen, self._expire, self._connect, self._repeat)
        fault = self._random.choice(faults)
        done = fault()
        if done:
            self.done.append(f"{self._group.reactor.seconds():9.3f} {done}")

    def _move(self) -> str:
        index = self._random.randrange(PARTITIONS)
        candidates = self._controller.candidates(index)
        if self._controller.states[index].leader < 0 or not candidates:
            return ""
        leader = self._random.choice(candidates)
        self._controller.elect(index, leader)
        return f"broker {leader} leads partition {index}"

    def _kill(self) -> str:
        if len(self._group.processes) < len(BROKERS):
            return ""
        broker_id = self._random.choice(sorted(self._group.processes))
        self._group.kill(broker_id)
        self._group.reactor.callLater(self._random.choice((0.1, 6.0)), self._end_session, broker_id)
        return f"broker {broker_id} is killed"

    def _end_session(self, broker_id: int) -> None:
        registered = self._controller.registered.get(broker_id)
        if registered is not None and not registered.clock.running:
            self._controller.lost(broker_id)

    def _start(self) -> str:
        stopped = [broker_id for broker_id in BROKERS if broker_id not in self._group.processes]
        if not stopped:
            return ""
        broker_id = stopped[0]
        if broker_id in self._controller.registered:
            self._controller.lost(broker_id)  # it ends its own old session first
        self._controller.register(self._group.start(broker_id))
        return f"broker {broker_id} is started"

    def _isolate(self) -> str:
        if self._group.cut:
            return ""
        broker_id = self._random.choice(BROKERS)
        self._group.cut.add(broker_id)
        return f"broker {broker_id} is cut off from the others"

    def _deafen(self) -> str:
        if self._group.deaf:
            return ""
        broker_id = self._random.choice(BROKERS)
        self._group.deaf.add(broker_id)
        return f"broker {broker_id} is cut off from the controller"

    def _expire(self) -> str:
        deaf = [b for b in self._group.deaf if b in self._controller.registered and b in self._group.processes]
        if not deaf:
            return ""
        self._controller.lost(deaf[0])
        return f"the session of broker {deaf[0]} expires"

    def _connect(self) -> str:
        if not self._group.cut | self._group.deaf:
            return ""
        self._group.cut.clear()
        self._group.deaf.clear()
        for broker_id, process in self._group.processes.items():
            if broker_id not in self._controller.registered:
                self._group.new_epoch(process)
                self._controller.register(process)
        return "all are connected"

    def _repeat(self) -> str:
        for broker_id in self._controller.registered:
            self._controller.repeat(broker_id)
        return "the controller sends everything again"

    # The end

    def _heal(self) -> None:
        for member in self._members:
            member.leaves = False
        self._start()
        self._connect()
        self._group.loss = 0.0
        self._pass(90.0)
        for member in self._members:
            if not member.synced:
                raise Broken(f"{member.name} is not in a generation at the end")
        self._shared.ended = True
        self._pass(5.0)

    def _check_end(self) -> None:
        for committer in self._committers:
            if not self._result(committer.commit()):
                raise Broken(f"{committer.name}: the last commit failed")
            if self._result(committer.fetch()) != committer.asked:
                raise Broken(f"{committer.name}: the last commit is not there")
        self._pass(1.0)
        self._check_coordinators()
        for index, state in enumerate(self._controller.states):
            if sorted(state.isr) != list(BROKERS):
                raise Broken(f"the ISR of partition {index} is {state.isr} at the end")
            logs = [process.replicas.get(OFFSETS_TOPIC, index).log for process in self._group.processes.values()]
            first, *others = [[data for _, data in entries(log)] for log in logs]
            if any(other != first for other in others):
                raise Broken(f"the replicas of partition {index} are not equal")

    def _check_coordinators(self) -> None:
        hosts: dict[str, set[int]] = {}
        for broker_id, process in self._group.processes.items():
            for hosted in process.coordinator.groups():
                hosts.setdefault(hosted.group.group_id, set()).add(broker_id)
        for group_id, brokers in hosts.items():
            leader = self._controller.states[partition_of(group_id, PARTITIONS)].leader
            if brokers != {leader}:
                raise Broken(f"group {group_id} is on brokers {sorted(brokers)}; its coordinator is {leader}")

    def _result(self, work: Any) -> Any:
        results: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(results.append)
        self._pass(10.0)
        if not results:
            raise Broken("a request of the end has no response")
        if isinstance(results[0], Failure):
            raise Broken(results[0].getTraceback())
        return results[0]


def main() -> int:
    """Exit status 0 when every history held, 1 when one did not."""
    parser = argparse.ArgumentParser(prog="make failovers ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=500, help="number of histories (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one (%(default)s)")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            History(seed, loss=(0.0, 0.01, 0.05)[seed % 3]).run()
        except Broken as error:
            print(error)
            return 1
    print(f"{arguments.count} histories, from seed {arguments.seed} on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
