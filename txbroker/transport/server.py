"""The socket of one connection: reads into large buffers, cuts frames, sends responses, and stops reading when too many wait."""

from __future__ import annotations

import logging
import socket
from functools import partial
from typing import Any, cast

from twisted.internet.error import ConnectionAborted
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

from txbroker.api.request_context import Session
from txbroker.transport.before_login import PARTS_MAX, Login
from txbroker.transport.events import READ, WRITE
from txbroker.transport.hub import Hub
from txbroker.transport.inbox import SIZE, Inbox
from txbroker.transport.interfaces import FRAME_BYTES_MIN, FrameProtocol
from txbroker.transport.output import RegionGone, RegionSend, SendQueue, join_small
from txbroker.transport.stream import Stream

log = logging.getLogger("txbroker.transport")

# Responses of at most this size together are joined and sent at once.
SEND_JOINED_MAX = 64 * 1024

# Responses are sent together with those of other connections (Hub.postpone) if at most this much was received for them, and they have no
# more bytes: a large request or response takes longer than waking a client.
TOGETHER_BYTES_MAX = 16 * 1024

# While others wait for the receive budget, a connection must receive this much of its large frame between two sweeps. One that has not for
# STALLED_SWEEPS is closed.
PROGRESS_BYTES_MIN = 64 * 1024
STALLED_SWEEPS = 6

_SIZE_BYTES = SIZE.size


class ServerTransport:
    """The transport of each accepted socket. Satisfies `FrameTransport`, and is a member of the poller and the hub.

    Reading stops while the protocol is full or too much output waits (`_blocked`; received frames stay in the inbox), and while the budget
    for large frames is used up (`inbox.starved`). `disconnecting`: the output is sent, then it is closed. The methods that Twisted's
    transports have, have Twisted's names.
    """

    __slots__ = ("_blocked", "_dirty", "_frame_bytes_max", "_frame_bytes_min", "_held", "_hub", "_inbox", "_input_ended", "_login",
                 "_output_bytes_max", "_queue", "_read_into", "_send_bytes", "_stalled_sweeps", "_stream", "_warming", "active",
                 "connected", "disconnecting", "protocol", "session")  # fmt: skip

    def __init__(
        self, stream: Stream, protocol: FrameProtocol, session: Session, hub: Hub, login: Login | None = None
    ) -> None:
        """`login`: that of a connection with TLS, which has begun with the handshake."""
        self._hub = hub
        self._login = login
        self._stream = stream
        self._read_into = stream.read_into
        self._send_bytes = stream.send
        self._frame_bytes_min, self._frame_bytes_max = FRAME_BYTES_MIN, hub.limits.request_bytes_max
        self._output_bytes_max = hub.limits.output_bytes_max
        self._inbox = Inbox(hub.buffers, self)
        self._queue = SendQueue()
        self._blocked = False
        self._input_ended = False
        self._warming = False
        self._dirty = False
        self._held = 0  # bytes of a large frame at the last sweep during which others waited
        self._stalled_sweeps = 0
        self.active = hub.tick
        self.protocol = protocol
        self.session = session
        self.connected = True
        self.disconnecting = False
        hub.quotas.add(session.peer_host)
        hub.opened(self)
        self._watch(read=True)
        if stream.wants:
            self._follow_stream()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _watch(self, *, read: bool | None = None, write: bool | None = None) -> None:
        """Have the poller call `doRead` and `doWrite`, or not any more; None: as before."""
        self._hub.poller.set_interest(self, read=read, write=write)

    def doRead(self) -> Exception | None:
        hub = self._hub
        self.active = hub.tick
        try:
            received = self._inbox.fill(self._read_into)
        except BlockingIOError:
            self._follow_stream()
            return None
        except OSError:
            return CONNECTION_LOST
        hub.serving = self._dirty = True
        try:
            why = self._handle() if received else self._end_of_input()
        finally:
            hub.serving = self._dirty = False
        if self._stream.wants:
            self._follow_stream()
        if why is None and 0 < self.protocol.output_bytes <= TOGETHER_BYTES_MAX and received <= TOGETHER_BYTES_MAX:
            self._dirty = True
            hub.postpone(self)
            return None
        return why or self._send()

    def doWrite(self) -> Exception | None:
        hub = self._hub
        if self._stream.wants & WRITE:
            try:
                self._stream.send(b"")
            except BlockingIOError:
                return None
            except OSError:
                return CONNECTION_LOST
        hub.serving = self._dirty = True
        try:
            why = self._advance() if self._blocked or self.protocol.output_bytes else self._send_queue()
        finally:
            hub.serving = self._dirty = False
        if why is None and not self._queue.size and not self._stream.wants & WRITE:
            self._watch(write=False)
            if self.disconnecting:
                return CONNECTION_DONE
        return why

    def limit_frames(self, high: int | None, low: int = FRAME_BYTES_MIN) -> None:
        size_max = self._hub.limits.request_bytes_max
        self._frame_bytes_min, self._frame_bytes_max = low, size_max if high is None else min(high, size_max)

    def expect_login(self, message_bytes_max: int) -> None:
        login = self._login
        if login is None:
            login = self._login = self._hub.logins.begin(self.session.peer_host, self._login_expired)
            why = self._hub.logins.too_many(self.session.peer_host)
            if why is not None:
                self._refuse("login_connections", why)
                self.abortConnection()
        login.expired = self._login_expired
        login.limit(PARTS_MAX * message_bytes_max, self._refuse)
        self._read_into = partial(login.read, self._stream.read_into)
        self.limit_frames(message_bytes_max)

    def logged_in(self) -> None:
        if self._login is not None:
            self._login.end()
            self._login = None
            self._read_into = self._stream.read_into
        self.limit_frames(None)

    def _login_expired(self) -> None:
        if self._login is not None and self._login.received:
            self._refuse("login_timeout", f"its client has not logged in within {self._hub.logins.limits.login_ms_max} ms")
        else:
            self._hub.closed_for["idle"] += 1
        self.abortConnection()

    def _refuse(self, reason: str, text: str) -> None:
        self._hub.closed_for[reason] += 1
        self._hub.handshakes.failed(self.session, text)

    def _follow_stream(self) -> None:
        """Do what the stream wants for itself."""
        wants = self._stream.wants
        if wants & WRITE:
            self._watch(write=True)
        if wants & READ and not (self._blocked or self._inbox.starved or self.disconnecting):
            self._hub.poller.read_again(self)

    def loseConnection(self) -> None:
        """Send the output, then close."""
        if self.connected and not self.disconnecting:
            self.disconnecting = True
            self._watch(read=False, write=True)

    def abortConnection(self) -> None:
        """Close it without sending what is not sent yet."""
        if self.connected:
            self._drop(ConnectionAborted())

    def _handle(self) -> Exception | None:
        """Pass every whole frame in the inbox to the protocol, as long as it takes them."""
        inbox, protocol, size_max = self._inbox, self.protocol, self._frame_bytes_max
        view, end = inbox.view, inbox.filled
        position = 0
        why = None
        while end - position >= _SIZE_BYTES:
            (size,) = SIZE.unpack_from(view, position)
            if not FRAME_BYTES_MIN <= size <= size_max:
                size_max = self._frame_bytes_max  # a login has changed it
                if not self._frame_bytes_min <= size <= size_max:
                    protocol.bad_size(size, size_max)
                    position = end
                    break
            frame_end = position + _SIZE_BYTES + size
            if frame_end > end:
                break
            if protocol.frame_received(view[position + _SIZE_BYTES : frame_end]):
                position = frame_end
            if protocol.full:
                why = self._send()
                if protocol.full:
                    self._block()
                if self._blocked or why:
                    break
        if position < end or not inbox.is_fresh:
            inbox.consumed(position)
            if inbox.starved:
                self._watch(read=False)
        return why

    def _end_of_input(self) -> Exception | None:
        """The peer has closed its side. It still gets the responses to what it has sent, as from Kafka."""
        if self._blocked:
            return None  # it is read again when the frames that wait are handled
        why = self._send()
        if why is None and self.protocol.in_flight:
            self._end_input()
            return None
        if why is None and self._queue.size:
            self.loseConnection()
            return None
        return why or CONNECTION_DONE

    def _end_input(self) -> None:
        """Read no more; the protocol closes the connection when it has answered the requests in flight."""
        self._input_ended = self._blocked = True
        self._watch(read=False)
        self.protocol.input_ended()

    def flush(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._hub.postpone(self)

    def flush_now(self) -> None:
        """Send the responses that are ready, and continue with frames that had to wait for that."""
        self._dirty = False
        if not self.connected:
            return
        try:
            why = self._advance() if self._blocked else self._send()
        except Exception:  # must not reach the connection that is being served
            log.exception("internal error: closing the connection of %s", self.session.connection_id)
            why = CONNECTION_LOST
        if why is not None:
            self._drop(why)

    def _drop(self, why: Exception) -> None:
        """Close the connection, outside of doRead and doWrite, which would return `why` to the poller."""
        self.connected = False
        self._watch(read=False, write=False)
        self._hub.reactor.callLater(0, self.connectionLost, Failure(why))

    def _advance(self) -> Exception | None:
        """Send, then handle the frames that were held back while too much output waited."""
        why = self._send()
        while self._blocked and why is None and not self.protocol.full and self._queue.size <= self._output_bytes_max // 2:
            self._blocked = False
            self._inbox.reload()
            why = self._handle() or self._send()
            if not self._blocked:
                self._read_on()
        return why

    def _block(self) -> None:
        self._blocked = True
        self._hub.pauses += 1
        self._watch(read=False)

    def _read_on(self) -> None:
        if self.connected and not (self._blocked or self._inbox.starved or self.disconnecting):
            self._watch(read=True)
            self._follow_stream()

    def granted(self) -> None:
        """The receive budget has memory for the large frame of this connection."""
        self.active = self._hub.tick
        self._read_on()

    def _send(self) -> Exception | None:
        """Take the protocol's output, and send as much as the socket takes."""
        protocol, queue = self.protocol, self._queue
        size = protocol.output_bytes
        if size:
            parts = protocol.take_output()
            joined = None
            if size <= SEND_JOINED_MAX and not queue.size:
                joined = cast(bytes, parts[0]) if len(parts) == 1 else join_small(parts)  # a response begins with bytes
            if joined is not None:
                try:
                    count = self._send_bytes(joined)
                except BlockingIOError:
                    count = 0
                except OSError:
                    return CONNECTION_LOST
                if count == size:
                    if self._stream.wants & WRITE:
                        self._watch(write=True)
                    return None
                parts, size = [memoryview(joined)[count:]], size - count
            queue.add(parts, size)
        return self._send_queue() if queue.size else None

    def _send_queue(self) -> Exception | None:
        queue = self._queue
        if self._warming:
            self._watch(write=False)
            return None
        before = queue.size
        try:
            queue.send(self._stream)
        except (ConnectionError, TimeoutError):
            return CONNECTION_LOST
        except (RegionGone, OSError) as error:
            self._hub.closed_for["file_gone"] += 1
            log.error("closing the connection of %s: %s", self.session.connection_id, error)
            if isinstance(error, RegionGone):
                self._hub.file_gone(error.path)
            return CONNECTION_LOST
        if queue.size != before:
            self.active = self._hub.tick
        if queue.cold is not None:
            self._warm(queue.cold)
        elif queue.size or self.disconnecting or self._stream.wants & WRITE:
            self._watch(write=True)
        if queue.size > self._output_bytes_max:
            self._block()
        return None

    def _warm(self, cold: RegionSend) -> None:
        """Let a worker read the next slice into the page cache, and continue then."""
        self._warming = True
        self._watch(write=False)
        self._hub.run_in_worker(cold.warming()).addBoth(self._warmed)

    def _warmed(self, _: object) -> None:
        # If the worker could not read, sendfile will fail, too, with the error.
        self._warming = False
        self._queue.cold = None
        self.flush()

    def reap(self) -> None:
        """Close a connection that was idle for connections.max.idle.ms, unless it waits for a response or for memory for its request.

        Its client may be gone if it sends no more: then it waits no longer for a response.
        """
        if self._queue.size:
            self._hub.closed_for["replies_not_taken"] += 1
            log.info("closing the connection of %s: the client does not read responses", self.session.connection_id)
            self.abortConnection()
        elif self._input_ended or not (self.protocol.in_flight or self._inbox.starved):
            self._hub.closed_for["idle"] += 1
            log.debug("closing the connection of %s: it is idle", self.session.connection_id)
            self.loseConnection()

    def check_progress(self) -> None:
        """Close a connection that has not continued an incomplete large frame for some sweeps."""
        held, before = 0 if self._blocked else self._inbox.holding, self._held
        self._held = held
        if not held or not before <= held < before + PROGRESS_BYTES_MIN:
            self._stalled_sweeps = 0
            return
        self._stalled_sweeps += 1
        if self._stalled_sweeps > STALLED_SWEEPS:
            self._hub.closed_for["stalled_request"] += 1
            log.warning("closing the connection of %s: no more data for a partial request", self.session.connection_id)
            if self.protocol.in_flight:
                self._inbox.close()  # others wait for its memory
                self._end_input()
            else:
                self.abortConnection()

    def connectionLost(self, reason: Failure) -> None:
        if self._stream.fileno() < 0:
            return
        self.connected = False
        if self._login is not None:
            self._login.end()
            self._login = None
        self._watch(read=False, write=False)
        self._inbox.close()
        self._queue.clear()
        self._stream.close(reset=reason.check(ConnectionAborted) is not None)
        protocol = self.protocol
        del self.protocol  # which refers to this transport
        try:
            protocol.connectionLost(reason)
        finally:
            # Only now the descriptor is free for another connection.
            self._hub.quotas.remove(self.session.peer_host)
            self._hub.closed(self)


def session_of(sock: socket.socket, client: Any, listener: str, number: int) -> Session:
    """The session of an accepted socket. `client`: the address of the peer. `number`: of the connections of this listener."""
    try:
        local = sock.getsockname()
    except OSError:
        local = ("", 0)
    return Session(
        peer_host=plain_host(client[0]),
        peer_port=client[1],
        local_host=plain_host(local[0]),
        local_port=local[1],
        listener=listener,
        number=number,
    )


# An IPv4 address as an IPv6 socket reports it.
_MAPPED = "::ffff:"


def plain_host(host: str) -> str:
    """The address without the IPv6 form of an IPv4 one."""
    return host.removeprefix(_MAPPED) if "." in host else host
