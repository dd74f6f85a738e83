"""One page on a loopback address, for a browser on this machine and for nobody else."""

from __future__ import annotations

import os
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from langmem_recall.errors import InputError

LOOPBACK = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    # The page has a policy of its own, but who may frame it can only be said here.
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
PATIENCE_S = 10.0
"""How long a client may take over its request."""
_HTTP_PORT = 80


class PageServer(ThreadingTCPServer):
    """Gives one page to whoever on this machine asks for `/` by the server's own name.

    Not an `HTTPServer`: that one asks the network for the name of the host.

    Args:
        page: What is served.
        port: 0 takes any that is free.
    """

    daemon_threads = True
    # On Windows another program could take the port over.
    allow_reuse_address = os.name == "posix"

    def __init__(self, page: bytes, port: int = 0) -> None:
        self.page = page
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise InputError(
                f"Port {port} of {LOOPBACK} cannot be served ({error}). Choose another with "
                "--port, or leave it out for one that is free."
            ) from error

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def is_called(self, host: str) -> bool:
        """Whether a Host header names this server: a rebound DNS name does not."""
        port = self.server_address[1]
        ports = (f":{port}", "") if port == _HTTP_PORT else (f":{port}",)
        return host.lower() in {name + port for name in (LOOPBACK, "localhost") for port in ports}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET of `/`, and refuses the rest."""

    server: PageServer
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        """Send the page to whoever asks for it by our name."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not self.server.is_called(hosts[0]):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, explain="Open the address as printed.")
        elif self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(self.server.page)))
            self.end_headers()
            self.wfile.write(self.server.page)

    def end_headers(self) -> None:
        """Refusals carry the headers too."""
        for name, told in HEADERS.items():
            self.send_header(name, told)
        super().end_headers()

    def version_string(self) -> str:
        """No versions for strangers."""
        return "langmem-recall"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the user, not to who sends requests."""
