"""moto's S3 server as a program: `object_store_program.py PORT [RECORD]`.

With a file to record to, it has after a kill what it had before.
"""

import base64
import io
import json
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple
from werkzeug.test import Client

Environment = dict[str, Any]


class Recorded:
    """An application that writes down each request that changes something, before it is carried out."""

    def __init__(self, application: Callable[..., Iterable[bytes]], record: Path) -> None:
        self._application, self._record = application, record
        self._lock = threading.Lock()

    def __call__(self, environ: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            words = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", ""))
            line = json.dumps([*words, base64.b64encode(body).decode()]) + "\n"
            with self._lock, self._record.open("a") as file:
                file.write(line)
        return self._application(environ, start_response)

    def replay(self) -> None:
        """Carry out what was written down. Before: nothing listens yet."""
        client = Client(self._application)
        for line in self._record.read_text().splitlines(keepends=True) if self._record.exists() else ():
            if line.endswith("\n"):  # else the kill cut it
                method, path, query, body = json.loads(line)
                client.open(path, method=method, query_string=query, data=base64.b64decode(body))


def main(port: str, record: str | None = None) -> None:
    """Serve until the process is killed."""
    application: Any = DomainDispatcherApplication(create_backend_app)
    if record is not None:
        application = Recorded(application, Path(record))
        application.replay()
    run_simple("127.0.0.1", int(port), application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(*sys.argv[1:])
