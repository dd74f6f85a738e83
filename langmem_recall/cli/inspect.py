"""`langmem-recall inspect`: recorded recalls and stored memories as one page for the browser."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any

from langmem_recall.cli import inputs
from langmem_recall.cli.output import Result, deliver, note, progress, replaced
from langmem_recall.errors import InputError
from langmem_recall.observe.inspector.page import PageData
from langmem_recall.observe.log import files, read_log
from langmem_recall.types import Memory, Namespace, Usage

SQLITE = b"SQLite format 3\x00"


def inspect_command(
    sources: list[str],
    namespace: str | None = None,
    serve: bool = False,
    port: int | None = None,
    as_json: bool = False,
    output: Path | None = None,
) -> None:
    """Show why each memory was recalled or not, on a page that needs nothing but a browser.

    Traces give turns, what-if sliders and health; a store gives its memories and their use. A
    namespace keeps the traces that looked into it, with all that they found.

    The page holds what the memories say. While it is served, everybody with an account on this
    machine can read it. Reading counts as no use.
    """
    if output is None and not serve:
        raise InputError("Where should the page go? Write it with -o page.html, or use --serve.")
    if port is not None and not serve:
        raise InputError("--port goes with --serve. Add --serve, or leave the port out.")
    paths = [Path(source).absolute() for source in sources if not inputs.is_postgres(source)]
    read = {file.resolve() for path in paths for file in (path, *files(path))}
    if output and output.resolve() in read:
        raise InputError(f"{output} is what is inspected. Name another file for the page.")
    with progress("reading"):
        shown = Inspection(sources, inputs.parse_namespace(namespace))
    data, made = shown.data, shown.data.html().encode()
    turns, memories = len(data.turns), len({row[:2] for row in data.memories})
    if data.unreadable:
        note(f"{data.unreadable:,} records could not be read and are left out.")
    if output:
        with replaced(output) as fresh:
            fresh.write_bytes(made)
    record: dict[str, Any] = {"output": output and str(output), "turns": turns}
    record |= {"memories": memories, "bytes": len(made)}
    counts = f"{turns:,} turns and {memories:,} memories ({len(made) / 1e6:,.1f} MB) are"
    if not serve:
        return deliver(Result(record, f"{counts} in {output}."), as_json)
    with PageServer(shown.page, port or 0) as server:
        record["address"] = server.address
        line = f"{counts} at {server.address} until you press Ctrl-C; it follows the log."
        deliver(Result(record, line), as_json)
        # A parent process that reads our pipe waits for the address.
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            server.serve_forever()


# --- reading --------------------------------------------------------------------------------------


class Inspection:
    """What is shown of logs, which may grow, and of stores as they are when they are opened."""

    def __init__(self, sources: Sequence[str], namespace: Namespace) -> None:
        self._namespace, self._serving = list(namespace), threading.Lock()
        self._stored: list[tuple[Memory, Usage]] = []
        self._logs: list[str] = []
        self._seen: Hashable = None
        for source in sources:
            if not _is_store(source):
                self._logs.append(source)
                continue
            with inputs.open_store(source) as store:
                found = inputs.all_memories(store, namespace)
                self._stored += zip(found, inputs.usages_of(store, found), strict=True)
        self._read()

    def page(self, tag: str) -> tuple[str, bytes | None]:
        """The tag of what there is now, and the page where a client has that of another tag."""
        with self._serving:
            # While a log is rotated or away, what there was is shown.
            with suppress(InputError, OSError):
                if self._log_files() != self._seen:
                    self._read()
            now = f'"{hash(self._seen):x}"'
            return now, None if now == tag else self.data.html(live=now).encode()

    def _log_files(self) -> Hashable:
        """What tells the files of the logs from what they were before."""
        found = [file for log in self._logs for file in files(Path(log).absolute())]
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in found)

    def _read(self) -> None:
        """Take memories, and records that looked into the namespace."""
        seen, data = self._log_files(), PageData()
        for memory, usage in self._stored:
            data.add_memory(memory, usage)
        for log in self._logs:
            # What was a log still is, though all of it may have been erased.
            is_log = self._seen is not None
            for record in read_log(log):
                is_log |= data.add(record) if self._is_within(record) else "version" in record
            if not is_log:
                raise InputError(
                    f"{inputs.shown(log)} holds no traces that can be read. Pass what TraceLog "
                    "wrote, or the file of a LocalStore."
                )
        self.data, self._seen = data, seen

    def _is_within(self, record: Mapping[str, Any]) -> bool:
        """Whether a record looked into the namespace; a damaged one did not."""
        several, wanted = record.get("namespaces"), self._namespace
        places = [*(several if isinstance(several, list) else ()), record.get("namespace")]
        lists = (place for place in places if isinstance(place, list))
        return not wanted or any(place[: len(wanted)] == wanted for place in lists)


def _is_store(source: str) -> bool:
    if inputs.is_postgres(source):
        return True
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{source} is a folder. Name a log of traces or a LocalStore's file.")
    if not path.exists():
        return False
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


# --- serving --------------------------------------------------------------------------------------

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
PATIENCE_S = 10.0  # how long a client may take over its request


class PageServer(ThreadingTCPServer):
    """Gives one page to any program on this machine that asks for `/` by the server's own name.

    The page is what `page` makes for the tag that a client names: a new tag, and None where the
    client has it already. Port 0 takes any that is free. Not an `HTTPServer`: that one asks the
    network for the name of the host.
    """

    daemon_threads = True
    # On Windows another program could take the port over.
    allow_reuse_address = os.name == "posix"

    def __init__(self, page: Callable[[str], tuple[str, bytes | None]], port: int = 0) -> None:
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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET of `/`, and refuses the rest."""

    server: PageServer
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        """Send the page to a request by our name."""
        port = self.server.server_address[1]
        hosts = self.headers.get_all("Host", [])
        # A rebound DNS name is not ours.
        if len(hosts) != 1 or hosts[0].lower() not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, explain="Open the address as printed.")
        elif self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            tag, page = self.server.page(self.headers.get("If-None-Match", ""))
            self.send_response(HTTPStatus.NOT_MODIFIED if page is None else HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page or b"")))
            self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(page or b"")

    def end_headers(self) -> None:
        """Refusals carry the headers too."""
        for name, text in HEADERS.items():
            self.send_header(name, text)
        super().end_headers()

    def version_string(self) -> str:
        """No versions for strangers."""
        return "langmem-recall"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the user, not to requests."""
