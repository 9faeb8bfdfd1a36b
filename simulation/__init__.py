"""Deterministic simulation: a whole cluster in one thread, whose clock, chance, network, disks and ZooKeeper are simulated.

`Cluster(plan)` runs the real code of brokers, from `txbroker/connection` down to the log: request handlers, replicas, the controller,
group coordinators, and the loops that copy partitions. A seed decides everything, so that a failure is found again by its seed.

    plan.py        what a seed draws: the cluster, the clients' work and the faults, as values (swarm testing)
    plan_file.py   plans as JSON that people can read and change; plan_values.py: what their fields may hold
    workloads.py   which clients a seed has beside plain ones
    cluster.py     builds a cluster from a plan, runs it, heals it, and requires that it converges
    environment.py what all parts of a run share
    scheduler.py   simulated time: a heap of events
    process.py     one process: the reactor that its code runs on; it can be paused and killed
    network.py     byte streams between hosts: latency, cuts in one or both directions, slow links; client_transport.py: Twisted clients
    ports.py       the listening side: implements the broker's `Ports`
    memory_disk.py disks, which lose what was not synced, and fill up; host_disk.py: one process's view, which ends with it
    ensemble.py    ZooKeeper: servers with sessions, watches and old reads; zookeeper_session.py: its client, in the place of kazoo's
    hosts.py       the machines of brokers
    clients/       producers, transactions, consumers, members of groups, administrators
    ledger.py      what clients sent and saw; transaction_ledger.py and group_ledger.py: of transactions and groups
    faults.py      carries out the faults of a plan; directed_faults.py: those of several steps; fault_actions.py: what both do and undo
    rules.py       rules for faults, as those of brokers for tests, on the clients' connections
    invariants/    what must hold after every step, and at the end
    trace.py       one line for each transition; its hash compares two runs
    shrink.py      removes faults, clients and time from a failing plan
    bugs/          deliberate bugs: each must be found

Random numbers come from one stream for each purpose (`chance.py`), so that a plan without one of its faults stays comparable.
"""
