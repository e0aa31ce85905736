"""The HTTP side: reads a request, applies the fault ordered for it, writes the answer, keeps the
log.
"""

import socket
import struct
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from hub_stand_in.answers import Answer, Refusal
from hub_stand_in.faults import Cut, Failure, LoggedRequest, LostAnswer
from hub_stand_in.routing import Exchange, Routes

if TYPE_CHECKING:
    from hub_stand_in.hub import HubStandIn


class Server(ThreadingHTTPServer):
    """One port of the stand-in."""

    daemon_threads = True

    def __init__(self, hub: "HubStandIn", routes: Routes) -> None:
        self.hub = hub
        self.routes = routes
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), Connection)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self._open.discard(request)
        super().shutdown_request(request)

    def close(self) -> None:
        """Stop serving, with the connections that clients keep open for the next request."""
        self.shutdown()
        self.server_close()
        for request in list(self._open):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: without this each answer waits for the client's delayed
    # acknowledgement.
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on stderr: the log is `HubStandIn.requests`."""

    def serve(self) -> None:
        address = urlsplit(self.path)
        path = unquote(address.path)
        fault = self.server.hub.faults.take(self.command, path)
        size = int(self.headers.get("Content-Length", 0))
        if isinstance(fault, Cut) and size > 0:
            self.rfile.read(min(fault.after_bytes, size))
            self._break_off(path, reset=True)
            return
        body = self.rfile.read(size)
        if len(body) < size:
            self._break_off(path, reset=False)
        elif isinstance(fault, Failure):
            self._send(path, Refusal(fault.status, fault.message, headers=fault.headers).answer)
        else:
            answer = self._answer(address.path, parse_qs(address.query), body)
            if isinstance(fault, LostAnswer):
                self._break_off(path, reset=False)
            else:
                self._send(path, answer, fault)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve

    def _answer(self, path: str, query: dict[str, list[str]], body: bytes) -> Answer:
        hub = self.server.hub
        try:
            account = hub.accounts.of(self.headers.get("Authorization"))
            exchange = Exchange(
                hub, self.command, path, query, account, body, self.headers.get("Range")
            )
            with hub.lock:
                return self.server.routes.answer(exchange)
        except Refusal as refusal:
            return refusal.answer

    def _log(self, path: str, status: int | None) -> None:
        # Before the answer goes out: whoever has the answer finds the request in the log.
        token_sent = "Authorization" in self.headers
        self.server.hub.requests.append(
            LoggedRequest(self.command, path, status, token_sent, self.headers.get("Range"))
        )

    def _send(self, path: str, answer: Answer, cut: Cut | None = None) -> None:
        self._log(path, None if cut else answer.status)
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: cut.after_bytes] if cut else answer.body)
        if cut:
            self._close(cut.reset)

    def _break_off(self, path: str, reset: bool) -> None:
        self._log(path, None)
        self._close(reset)

    def _close(self, reset: bool) -> None:
        self.close_connection = True
        if reset:
            # Closing with a linger time of zero sends RST; the reader holds the socket open until
            # it is closed too.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()
