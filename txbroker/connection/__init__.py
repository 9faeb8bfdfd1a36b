"""One client connection's protocol: frames in, responses out in the order of the requests.

It has no socket and no clock. The transport hands over whole frames and takes the output; when the response to a request comes later,
the connection calls `transport.flush()`. `Connection` is made of layers, because the transport reads one object for each request:

- `protocol.py`: calls the handlers of requests, and turns errors into responses or into the end of the connection;
- `admission.py`: which request may be handled now;
- `response_order.py`: what is in flight, the order of the responses, and how much of both there may be.

`states.py` has the states of a connection, and what it takes in each of them.

Kafka serves one request of a connection at a time. Clients rely on it: a commit and a fetch of offsets that are sent together, and a
login and what it permits. So a request waits until all requests before it on its connection are answered, and the requests after it wait
for its response. Handlers of Produce and Fetch are exempt (`overlaps`) and overlap with each other. This is safe:

- The records of a Produce are appended when it is received. Only its response waits, for replicas or a sync. So the appends of a
  producer keep their order. The first batch of a transaction in a
  partition waits for the coordinator, and those of its producer behind it: a batch of another producer on the connection may pass them.
- A Fetch changes nothing but its fetch session, and the session epochs fix the order of the fetches of one session.
- Responses keep the order of the requests. What a client sees is what it could see in Kafka if its requests had taken longer on their
  way, with one difference: a Fetch that is sent behind a Produce with acks=all, without waiting for the response, may be answered
  without these records, because they are not committed yet. Its next Fetch returns them.

A client that exceeds a quota (`client_quotas/`) gets its response at once, with the throttle time; until that has passed, no more requests
are taken from the connection (KIP-219).

These close a connection, each with one line in the log: a frame of an impossible size, a request that cannot be decoded, an API or
version that is not served (ApiVersions gets a response instead, KIP-511), and an error that no response can carry (failures of a disk
have one line a minute: `api/unanswered_appends.py`). As in Kafka, which serves one request at a time, the requests before it are answered
first, and none after it is handled: the end has its place in the order of the responses (`Slot.is_last`). The same holds for a client
that sends no more (`input_ended`).
"""
