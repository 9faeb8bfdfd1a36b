"""Stand-ins for what a broker takes from outside, for tests. Each behaves as the real part does: `tests/fakes` has one suite for both.

| part | stand-ins | real |
|---|---|---|
| disk | `MemoryDisk`; `FaultyDisk` puts faults in front of any disk; `DiskPath` is a path on any disk | `OsDisk` |
| clock | `FakeReactor`; `ProcessClock` is the clock of one of several processes on it | Twisted's reactor |
| workers | `Worker` is a `Later`, `JobWorker` and `Turns` are an `in_worker`; `SimulatedWorkers` is both, on a reactor | thread pools |
| `Threads` of ZooKeeper | `QueuedThreads` of `tests/support/zookeeper_threads.py`; `SimulatedThreads` | `ReactorThreads` |
| environment | `fake_environment` | the environment of `broker_service.py` |

`MemoryDisk` and `SimulatedWorkers` are in `simulation`, which uses them, too, and whose `Process` is in the same suite.

Which clock: a test of one object and its timers uses Twisted's `task.Clock`. It makes all calls of an `advance` at the end of it, as a
late turn of the reactor does, and `getDelayedCalls` shows what waits. A test of many objects, such as a whole broker, uses `FakeReactor`.
It makes each call at its own time, is quick with many calls, and has a port and a shutdown. Test modules have no other clocks; a special
one derives from these.
"""
