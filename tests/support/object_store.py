"""An S3 server for tests: moto's, as a process of its own, that can go away and come back."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

PROGRAM = Path(__file__).with_name("object_store_program.py")
BUCKET = "pictures"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "sEcReT-canary-1234567890"}


class ObjectStore:
    """A server on a port of its own. With a `record`, a file, what it stores is there again after a stop; else it is lost."""

    def __init__(self, record: Path | None = None) -> None:
        self._record = record
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Before: it is stopped. After: it answers, and has the bucket `BUCKET`, with what was stored if it has a record, else empty."""
        self._process = subprocess.Popen(
            (sys.executable, PROGRAM, str(self.port), *(() if self._record is None else (self._record,))),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        if self._record is None or not self._record.exists():
            # moto asks for no signature.
            with urlopen(Request(f"{self.endpoint}/{BUCKET}", method="PUT"), timeout=60) as answer:  # noqa: S310
                assert answer.status == 200

    def stop(self) -> None:
        """After: nothing listens on the port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def object_store(record: Path | None = None) -> Iterator[ObjectStore]:
    """A running server."""
    server = ObjectStore(record)
    server.start()
    try:
        yield server
    finally:
        server.stop()
