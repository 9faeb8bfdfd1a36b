"""The protocol of one connection with rules and a journal: requests go through it to the broker's own, and its answers back.

Answers leave in the order of the requests, as the protocol of Kafka requires: what waits holds back what follows on the same connection.
A request that is held back is not taken from the transport, which offers it again. Other connections go on.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from twisted.python.failure import Failure

from txbroker.api.encoded.response_frame import Part
from txbroker.api.registry import Route, route_key
from txbroker.api.request_context import RequestContext
from txbroker.connection.protocol import Connection
from txbroker.errors import BrokerError, ErrorCode, ProtocolError
from txbroker.testing import error_scopes, traffic
from txbroker.testing.answer_frames import answer_body, answer_parts, decoded_answer, decoded_request, joined, with_body
from txbroker.testing.changed_answers import changed_answer
from txbroker.testing.faults import Faults
from txbroker.testing.journal_log import OPEN, Call
from txbroker.testing.rule_set import ActiveRule
from txbroker.testing.settings import OWN_CLIENT_ID
from txbroker.transport.interfaces import FrameTransport
from txbroker.wire.codec import decode
from txbroker.wire.headers import API_VERSIONS_KEY, FIXED_REQUEST_HEADER, read_client_id
from txbroker.wire.schema import Request, Response

log = logging.getLogger("txbroker.testing")

_START = struct.Struct(">Ii")  # API key and version, correlation id
_PREFIX = struct.Struct(">ii")  # size, correlation id
SIZE_BYTES = 4  # before each request
_DECODED_MAX = 16 * 1024 * 1024  # bytes of an answer whose errors the journal has
# An error in place of the whole answer would hide the brokers from a client: the broker's own answer is changed instead.
_EDITED = frozenset({"Metadata"})
# Their partitions fail or succeed together: the others have this error, as in Kafka.
_TOGETHER = {"AddPartitionsToTxn": ErrorCode.OPERATION_NOT_ATTEMPTED}


class _Answer:
    """The place of an answer in the order of a connection: `parts` is None until it may be sent.

    `failures`: the answer to the part of the request that fails by a rule; `rest`: the request without that part. `closes`: the connection
    is closed in its place.
    """

    __slots__ = ("call", "closes", "failures", "parts", "rest", "route", "rule")

    def __init__(self, call: Call, route: Route, rule: ActiveRule | None) -> None:
        self.call = call
        self.route = route
        self.rule = rule
        self.parts: list[Part] | None = None
        self.failures: Response | None = None
        self.rest: memoryview | None = None
        self.closes = False


class FaultProtocol:
    """Satisfies `FrameProtocol`. `inner`: the broker's own."""

    def __init__(self, inner: Connection, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self._number = faults.new_connection()
        self._transport: FrameTransport
        self._order: deque[_Answer] = deque()
        self._ready: list[Part] = []
        self._ready_bytes = 0
        self._partial: list[Part] = []  # of an answer of the broker whose other parts follow
        self._missing = 0
        self._slices: deque[bytes] = deque()  # of an answer that is sent in pieces
        self._offered: _Answer | None = None  # of the request that the transport offers again
        self._blocked = False  # a request is held back
        self._passed = False  # that request may go on
        self._at_gate = False  # a request waits for the gate
        self._is_kafka = True
        self._ended = False  # nothing more is taken or sent: the connection is closed, or left to hang

    def makeConnection(self, transport: Any) -> None:
        self._transport = transport
        self._faults.open.add(self)
        self._inner.makeConnection(transport)

    def connectionLost(self, reason: Failure) -> None:
        self._faults.open.discard(self)
        self._end("closed")
        self._inner.connectionLost(reason)

    def close(self) -> None:
        """Close the connection; requests without an answer get none."""
        self._end("closed")
        self._transport.loseConnection()

    @property
    def full(self) -> bool:
        """See `FrameProtocol`."""
        return self._blocked or self._at_gate or self._inner.full

    @property
    def in_flight(self) -> int:
        """See `FrameProtocol`."""
        return len(self._order) + self._inner.in_flight

    @property
    def output_bytes(self) -> int:
        """See `FrameProtocol`."""
        self._pull()
        return self._ready_bytes

    def take_output(self) -> Sequence[Part]:
        """See `FrameProtocol`."""
        self._pull()
        taken, self._ready, self._ready_bytes = self._ready, [], 0
        return taken

    def bad_size(self, size: int, size_max: int) -> None:
        """See `FrameProtocol`. The answer may be in another protocol: HTTP."""
        self._is_kafka = False
        self._inner.bad_size(size, size_max)

    def input_ended(self) -> None:
        self._inner.input_ended()

    def frame_received(self, frame: memoryview, /) -> bool:
        """See `FrameProtocol`."""
        if self._ended:
            return True
        if self._inner.takes_messages:  # of a login, without a header
            self._pull()
            taken = self._inner.frame_received(frame)
            self._add(list(self._inner.take_output()))
            return taken
        if self._faults.gate.is_closed:
            self._wait_at_gate()
            return False
        answer, request = self._offered, None
        if answer is None:
            if self._is_later(frame):
                return True
            try:
                answer, request = self._begin(frame)
            except ProtocolError:
                return self._inner.frame_received(frame)  # which refuses it
            if self._holds_back(answer, len(frame)):
                self._offered = answer
                return False
        elif not self._passed:
            return False
        rule = answer.rule
        if rule is not None and answer.rest is None and _is_before(rule, answer.call):
            request = request or decoded_request(answer.route, frame)
            if self._acts(answer, rule, frame, request):
                self._offered = None
                return True
        if not self._inner.frame_received(frame if answer.rest is None else answer.rest):
            self._offered, self._passed = answer, True
            return False
        self._offered, self._passed = None, False
        return True

    def _wait_at_gate(self) -> None:
        if not self._at_gate:
            self._at_gate = True
            self._faults.gate.wait(self._gate_opened)

    def _gate_opened(self) -> None:
        self._at_gate = False
        if not self._ended:
            self._transport.flush()

    def _is_later(self, frame: memoryview) -> bool:
        """Whether the release that this broker shows does not serve the request: it is refused as that release refuses it."""
        release = self._faults.shown_release
        if release is None:
            return False
        api_key, version, correlation_id = FIXED_REQUEST_HEADER.unpack_from(frame)
        if release.serves(api_key, version):
            return False
        client_id, name = None, str(api_key)
        with suppress(ProtocolError):
            route = self._inner.route(route_key(api_key, version))
            client_id, _ = read_client_id(frame, route.request_header)
            name = route.name.partition(" ")[0]
        if client_id == OWN_CLIENT_ID:
            return False
        now_s, about = self._faults.now_s(), traffic.Subject()
        call = self._faults.journal.begin(now_s, self._number, name, version, correlation_id, client_id, about, 0)
        answer = _Answer(call, self._inner.route(route_key(API_VERSIONS_KEY, 0)), None)
        if api_key == API_VERSIONS_KEY:
            refusal = release.unknown_version()
            call.api, call.errors = "ApiVersions", traffic.errors(refusal)
            answer.parts = answer_parts(answer.route, refusal, correlation_id)
        else:
            log.warning("Kafka %s does not serve %s v%d: closing the connection", release.name, name, version)
            answer.parts, answer.closes = [], True
            self._blocked = True  # Kafka would not have read what follows
        self._order.append(answer)
        self._drain()
        if not self._ended:
            self._transport.flush()
        return True

    def _begin(self, frame: memoryview) -> tuple[_Answer, Request]:
        """A new request: its place in the journal and in the order of answers, and the rule that acts on it. ProtocolError."""
        key, correlation_id = _START.unpack_from(frame)
        route = self._inner.route(key)
        client_id, _ = read_client_id(frame, route.request_header)
        request = decoded_request(route, frame)
        api = route.name.partition(" ")[0]
        about = traffic.subject(request, self._faults.ids)
        is_answered, rules = route.is_answered(request), self._faults.rules
        rule = None if client_id == OWN_CLIENT_ID else rules.choose(api, route.api_version, client_id, about, is_answered=is_answered)
        call = self._faults.journal.begin(
            self._faults.now_s(), self._number, api, route.api_version, correlation_id, client_id, about, 0 if rule is None else rule.number
        )
        answer = _Answer(call, route, rule)
        if is_answered:
            self._order.append(answer)
        else:
            call.outcome = "none"
        return answer, request

    def _holds_back(self, answer: _Answer, size: int) -> bool:
        """Whether the request, of `size` bytes, has to wait: then it goes on later."""
        rule = answer.rule
        is_slow = rule is not None and rule.spec.action == "read_slowly"
        if rule is None or not (is_slow or (rule.spec.action in ("delay", "hold") and rule.spec.of == "request")):
            return False
        self._blocked, self._passed = True, False
        if is_slow:
            self._faults.clock.callLater((SIZE_BYTES + size) / rule.spec.bytes_per_second, self._go_on)
        else:
            self._later(rule, self._go_on)
        return self._blocked

    def _go_on(self) -> None:
        self._blocked, self._passed = False, True
        if not self._ended:
            self._transport.flush()

    def _later(self, rule: ActiveRule, call: Callable[[], object]) -> None:
        if rule.spec.action == "hold":
            self._faults.hold(rule, call)
        else:
            self._faults.clock.callLater(rule.spec.seconds, call)

    def _acts(self, answer: _Answer, rule: ActiveRule, frame: memoryview, request: Request) -> bool:
        """Whether something happens in place of the request."""
        if rule.spec.action == "disconnect":
            self._close(answer, "closed")
        elif rule.spec.action == "blackhole":
            self._end("lost")
        else:
            return self._refuses(answer, rule, frame, request)
        return True

    def _refuses(self, answer: _Answer, rule: ActiveRule, frame: memoryview, request: Request) -> bool:
        """Answer with an error, and leave the broker out: True. False if it gets the request, or the part of it that does not fail."""
        call, route, code, ids = answer.call, answer.route, ErrorCode[rule.spec.error], self._faults.ids
        is_answered = answer in self._order
        others = _TOGETHER.get(call.api, 0)
        fails_whole = rule.spec.at == error_scopes.REQUEST or all(rule.chooses(*each) for each in traffic.subject(request, ids).partitions)
        rest = None
        if is_answered and not others and not fails_whole:
            rest = decoded_request(route, frame)
            error_scopes.keep(rest, lambda topic, partition: not rule.chooses(topic, partition), ids)
            error_scopes.keep(request, rule.chooses, ids)
        context = RequestContext(route.api_key, route.api_version, call.correlation_id, call.client_id, self._transport.session)
        response = None if route.failed is None else route.failed(request, context, BrokerError(code))
        if response is None or not is_answered:
            self._close(answer, "closed")
            return True
        if not error_scopes.set_errors(response, route.api_version, code, rule.spec.at, rule.chooses, ids, others=others):
            self._missed(answer, rule)
            return False
        if rest is not None:
            answer.failures, answer.rest = response, with_body(route, frame, rest)
            return False
        call.errors = traffic.errors(response)
        answer.parts = answer_parts(route, response, call.correlation_id)
        self._drain()
        self._transport.flush()
        return True

    def _missed(self, answer: _Answer, rule: ActiveRule) -> None:
        """The rule had nothing to change, and has not acted."""
        rule.missed()
        answer.call.rule = 0
        answer.rule = None

    def _close(self, answer: _Answer, outcome: str) -> None:
        """Close the connection when what is ready has been sent."""
        answer.call.outcome = outcome
        self._end("closed")
        self._transport.loseConnection()

    def _end(self, outcome: str) -> None:
        """Take and send nothing more."""
        self._ended = True
        for answer in self._order:
            if answer.call.outcome == OPEN:
                answer.call.outcome = outcome
        self._order.clear()

    def _pull(self) -> None:
        """Take the answers that the broker has made."""
        if not self._inner.output_bytes:
            return
        if not self._is_kafka:
            self._add(list(self._inner.take_output()))
            return
        for part in self._inner.take_output():
            if not len(part):  # an empty region
                continue
            if not self._missing:
                size, _ = _PREFIX.unpack_from(part)  # type: ignore[arg-type]  # an answer begins with bytes
                self._missing = size + 4
            self._partial.append(part)
            self._missing -= len(part)
            if not self._missing:
                parts, self._partial = self._partial, []
                self._answered(parts)

    def _answered(self, parts: list[Part]) -> None:
        """One whole answer of the broker."""
        _, correlation_id = _PREFIX.unpack_from(parts[0])  # type: ignore[arg-type]
        answer = next((each for each in self._order if each.parts is None and each.call.correlation_id == correlation_id), None)
        if answer is None:
            if not self._ended:  # the answer to a request that could not be decoded
                self._add(parts)
            return
        parts = self._as_release(answer, parts)
        self._read_errors(answer, parts)
        rule = answer.rule
        action = "" if rule is None else rule.spec.action
        if rule is None or action == "read_slowly" or (action in ("delay", "hold") and rule.spec.of == "request"):
            answer.parts = parts
        elif action in ("delay", "hold"):
            self._later(rule, lambda: self._let_go(answer, parts))
        elif rule.spec.function:
            self._ask(answer, rule, parts)
        else:
            self._change(answer, rule, parts)
        self._drain()

    def _ask(self, answer: _Answer, rule: ActiveRule, parts: list[Part]) -> None:
        """Have the function of the rule change the answer."""
        call, route = answer.call, answer.route

        def done(edited: bytes | None, problem: str) -> None:
            call.problem = problem
            if edited is None:
                self._let_go(answer, parts)
                return
            response = decode(route.response, route.api_version, edited)
            call.errors = traffic.errors(response)
            self._let_go(answer, answer_parts(route, response, call.correlation_id))

        self._faults.edits.ask(rule, call.api, route.api_version, answer_body(route, parts), done)

    def _as_release(self, answer: _Answer, parts: list[Part]) -> list[Part]:
        """The answer to ApiVersions of the release that this broker shows."""
        call, route, release = answer.call, answer.route, self._faults.shown_release
        if release is None or call.api != "ApiVersions" or call.client_id == OWN_CLIENT_ID:
            return parts
        response = decoded_answer(route, parts)
        release.narrow(response)
        return answer_parts(route, response, call.correlation_id)

    def _let_go(self, answer: _Answer, parts: list[Part]) -> None:
        answer.parts = parts
        self._drain()
        if not self._ended:
            self._transport.flush()

    def _change(self, answer: _Answer, rule: ActiveRule, parts: list[Part]) -> None:
        """What happens to the answer; `_drain` sends slices, and closes the connection where an answer is lost."""
        action = rule.spec.action
        if action in ("truncate", "slice") and rule.spec.size >= sum(map(len, parts)):
            self._missed(answer, rule)
        if action == "duplicate":
            answer.parts = [*parts, *parts]
        elif action in ("error", "throttle", "corrupt", "edit"):
            answer.parts = self._edited(answer, rule, parts)
        elif action == "lose_answer":
            answer.parts = []
        else:
            answer.parts = [joined(parts)[: rule.spec.size]] if action == "truncate" else parts

    def _edited(self, answer: _Answer, rule: ActiveRule, parts: list[Part]) -> list[Part]:
        """The broker's own answer with the change of the rule; unchanged if there is nothing to change."""
        call, route = answer.call, answer.route
        response = decoded_answer(route, parts)
        if answer.failures is not None:
            error_scopes.merge(response, answer.failures)
        elif not changed_answer(response, route.api_version, rule, self._faults.ids):
            self._missed(answer, rule)
            return parts
        call.errors = traffic.errors(response)
        return answer_parts(route, response, call.correlation_id)

    def _drain(self) -> None:
        """Send what may be sent, in order."""
        while self._order and not self._slices and (parts := self._order[0].parts) is not None:
            answer = self._order.popleft()
            call = answer.call
            if answer.closes:
                self._close(answer, "closed")
                return
            call.bytes = sum(map(len, parts))
            call.answered_s = self._faults.now_s()
            call.outcome = "answered"
            spec = None if answer.rule is None else answer.rule.spec
            if spec is not None and spec.action == "slice":
                whole = joined(parts)
                self._slices.extend(whole[at : at + spec.size] for at in range(0, len(whole), spec.size))
                self._send_slice()
                return
            self._add(parts)
            if spec is not None and spec.action in ("lose_answer", "truncate"):
                self._close(answer, "lost")

    def _send_slice(self) -> None:
        """Send the next piece of an answer, each in a turn of its own."""
        if self._ended:
            return
        self._add([self._slices.popleft()])
        self._transport.flush()
        if self._slices:
            self._faults.clock.callLater(0, self._send_slice)
        else:
            self._drain()

    def _add(self, parts: list[Part]) -> None:
        self._ready += parts
        self._ready_bytes += sum(map(len, parts))

    def _read_errors(self, answer: _Answer, parts: list[Part]) -> None:
        """The errors of an answer, and the ids of topics that it has."""
        route = answer.route
        if sum(map(len, parts)) > _DECODED_MAX:
            return
        try:
            response = decoded_answer(route, parts)
        except ProtocolError as error:
            log.warning("an answer to %s cannot be read for the journal: %s", route.name, error)
            return
        self._faults.ids.learn(response)
        answer.call.errors = traffic.errors(response)


def _is_before(rule: ActiveRule, call: Call) -> bool:
    """Whether the rule acts in place of the request."""
    action = rule.spec.action
    return action in ("disconnect", "blackhole") or (action == "error" and call.api not in _EDITED)
