"""A server on loopback that answers as a test tells it to, and remembers what it was asked."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    method: str = "GET"
    body: bytes = b""


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = {}  # noqa: RUF012
    announced: int | None = None
    hang_up: bool = False


class ScriptedServer(NamedTuple):
    base_url: str
    requests: list[Request]


Script = Callable[[int, Request], Answer]


@contextmanager
def scripted(script: Script) -> Iterator[ScriptedServer]:
    """Serve `script`, which is given the number of the request and the request."""
    requests: list[Request] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A head sent before its body makes the other side wait 40 ms for an acknowledgement.
        wbufsize = -1

        def do_GET(self):
            with lock:
                number = len(requests)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                requests.append(Request(self.path, headers, self.command, body))
            answer = script(number, requests[number])
            if answer.hang_up:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header(
                "Content-Length", str(answer.announced or len(answer.body))
            )
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.announced is not None

        do_POST = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}
    )
    thread.start()
    try:
        yield ScriptedServer(f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def talking(
    talk: Callable[[socket.socket], None], *, at_once: bool = False
) -> Iterator[str]:
    """Let `talk` answer each connection, byte by byte, once a request has arrived; it may never return."""

    def serve(connection):
        with connection, suppress(OSError):
            if not at_once:
                connection.recv(1 << 16)
            talk(connection)

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(
                    target=serve, args=listener.accept()[:1], daemon=True
                ).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def repeating(answer: Answer) -> AbstractContextManager[ScriptedServer]:
    """Serve one answer to every request."""
    return scripted(lambda number, request: answer)


def by_path(bodies: dict[str, bytes], headers: dict[str, str] | None = None) -> Script:
    """Answer with the first body whose name is in the path that is asked for; "" is in each."""

    def script(number: int, request: Request) -> Answer:
        fitting = (body for name, body in bodies.items() if name in request.path)
        return Answer(body=next(fitting), headers=headers or {})

    return script
