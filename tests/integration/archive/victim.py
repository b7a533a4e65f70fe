"""A process that writes to an archive until it is killed. It prints each reference once it is synced, as a commit would be.

With `nth` it kills itself in the middle of its nth write to a segment, after a part of the bytes.
"""

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path
from unittest.mock import patch

from tests.integration.archive.exchanges import keep, numbered, writer


def main(folder: str, nth: int, part: float) -> None:
    plain = os.pwrite
    writes = count(1)

    def pwrite(file: int, data: bytes, offset: int) -> int:
        # The mark beside the segment is short.
        if len(data) > 100 and next(writes) == nth:
            plain(file, data[: int(len(data) * part)], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(file, data, offset)

    patch.object(os, "pwrite", pwrite).start()
    segments = writer(Path(folder), segment_bytes=100_000)
    for batch in count():
        numbers = range(batch * 10, batch * 10 + 10)
        for number, ref in zip(numbers, keep(segments, numbered(numbers, 4000)), strict=True):
            print(json.dumps([number, ref.segment, ref.offset, ref.length, ref.payload_digest.hex()]))
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
