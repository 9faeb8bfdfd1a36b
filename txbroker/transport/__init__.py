"""The sockets: large shared receive buffers; whole frames in, bytes and file regions out.

    hub = Hub(reactor, limits, run_in_worker, actions)           what all connections of one reactor share; hub.start(), hub.stop()
    listener = Listener(hub, "PLAINTEXT", host, port, build)
    listener.startListening() … listener.stopListening()         (a twisted.internet.tcp.Port)

`build()` returns a `Connection` (`connection/protocol.py`), or any other `FrameProtocol` (`interfaces.py`).
"""
