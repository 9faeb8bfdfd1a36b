"""What ACLs cost a request, in this process: `python -m bench.authorizing`.

Microseconds of CPU that the check of a produce to one topic takes, with an authorizer that allows everything (none is configured), and with
AclAuthorizer and 10, 1,000 and 10,000 ACLs, and the first decision for a name, which later requests reuse until the ACLs change. Each
figure is the minimum of several rounds, because other processes only add time.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.validation import least_us
from txbroker.api.authorization import Guard
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.resources import AclOperation, AclResource, Need
from txbroker.security.acl_authorizer import AclAuthorizer
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import AclEntry, AclPermission, PatternType, ResourcePattern
from txbroker.wire.messages.produce import ProduceRequest, TopicProduceData

COUNTS = (10, 1_000, 10_000)
PRINCIPAL = "User:web"
TOPIC = "orders"
VERSION = 13


def authorizer(count: int) -> AclAuthorizer:
    """With so many ACLs: on topics of others, one of ten for a prefix, and the one of the client's topic."""
    allowed = AclEntry(PRINCIPAL, "*", AclOperation.WRITE, AclPermission.ALLOW)
    entries = {ResourcePattern(AclResource.TOPIC, PatternType.LITERAL, TOPIC): frozenset({allowed})}
    for number in range(count - 1):
        kind = PatternType.LITERAL if number % 10 else PatternType.PREFIXED
        other = AclEntry(f"User:{number % 100}", "*", AclOperation.READ, AclPermission.ALLOW)
        entries[ResourcePattern(AclResource.TOPIC, kind, f"topic-{number}-")] = frozenset({other})
    made = AclAuthorizer((), allow_everyone=False)
    made.publish(AclIndex(entries))
    return made


def _needs(request: ProduceRequest, context: RequestContext) -> Sequence[Need]:
    return (Need(AclOperation.WRITE, AclResource.TOPIC, [topic.name for topic in request.topic_data], "topic_data", "responses"),)


def main() -> None:
    """Print a table in Markdown."""
    session = Session(peer_host="127.0.0.1", peer_port=1, local_host="127.0.0.1", local_port=2, listener="L", number=1, principal=PRINCIPAL)
    context = RequestContext(0, VERSION, 1, "bench", session)
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[])])

    def handled(request: object, context: RequestContext) -> None:
        """The handler's work is not what is measured."""

    print("| ACLs | a request, µs | the first one of a name, µs |\n|---|---|---|")
    print(f"| no authorizer | {least_us(lambda: handled(request, context)):.2f} | |")
    for count in COUNTS:
        acls = authorizer(count)
        guard = Guard(ProduceRequest, VERSION, handled, None, _needs, acls)
        again = least_us(lambda guard=guard: guard.call(request, context))  # type: ignore[misc]
        first = least_us(lambda acls=acls: acls.decide(PRINCIPAL, "127.0.0.1", AclOperation.WRITE, AclResource.TOPIC, TOPIC))  # type: ignore[misc]
        print(f"| {count:,} | {again:.2f} | {first:.2f} |")


if __name__ == "__main__":
    main()
