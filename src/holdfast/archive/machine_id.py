"""The identity of an archive folder: a file with a random text, which tells it from those of other machines.

The rule: it is made once and never changes. Host names are no identity: two machines may have the same, and one may change its own.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.archive.segment_file import make_folder
from holdfast.errors import HoldfastError

FILE: Final = "machine-id"
_BYTES: Final = 16
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC


def machine_id(folder: Path) -> str:
    """Return the identity of the archive folder `folder`. After: the folder has one, and it is on disk. Raises OSError, HoldfastError."""
    make_folder(folder)
    path = folder / FILE
    temporary = folder / f".{FILE}.{secrets.token_hex(8)}"
    if not path.exists():
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600), "w") as file:
            file.write(secrets.token_hex(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # Linked, not renamed: two processes that begin at the same time must read the same.
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
        temporary.unlink()
    with os.fdopen(os.open(path, os.O_RDONLY | _NO_LINK), "r") as file:
        found = file.read(200).strip()
    if not re.fullmatch(r"[0-9a-f]{8,64}", found):
        raise HoldfastError(
            f"{path} does not have the identity of an archive folder; if it is damaged, delete it: a new one is made."
        )
    return found
