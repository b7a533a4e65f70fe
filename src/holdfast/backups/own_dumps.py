"""The dumps of a shared server that this machine has made, by folder: a file of its data folder.

The rule: it distinguishes a folder whose disk is not mounted from one that is used for the first time. The store cannot tell, since
other machines may have folders of the same name. Without the file nothing is known, and nothing is refused.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import private
from holdfast.db.embedded import safe_files

FILE: Final = "backups.json"


@dataclass(frozen=True, slots=True)
class OwnDumps:
    """What one data folder knows."""

    data: Path

    def names(self, folder: Path) -> list[str]:
        """The backups that this machine has made in a folder, as far as it is known."""
        return self._read().get(str(folder), [])

    def record(self, folder: Path, names: Sequence[str]) -> None:
        """Record which backups a folder has. After: it is on disk."""
        known = self._read()
        if known.get(str(folder), []) == list(names):
            return
        private.make_folder(self.data)
        text = json.dumps({**known, str(folder): list(names)}, indent=1)
        safe_files.write(self.data / FILE, text, uid=os.geteuid(), gid=os.getegid())

    def _read(self) -> dict[str, list[str]]:
        with suppress(FileNotFoundError, ValueError):
            found = json.loads(safe_files.read(self.data / FILE))
            if isinstance(found, dict):
                return found
        return {}
