"""Stand-ins for what a broker takes from outside, for tests: each behaves as the real part does, and a conformance suite compares the two.

`MemoryDisk` is a `Disk` without files, `FaultyDisk` puts faults in front of any disk, `DiskPath` is a path on any disk. `Worker` and
`JobWorker` run jobs when the test says so, `FakeReactor` runs calls when the test lets time pass, and `fake_world` is a broker's `World`
of such parts. `Turns` is a queue of calls for the metadata tree.
"""
