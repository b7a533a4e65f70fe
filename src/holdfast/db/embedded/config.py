"""The configuration files of an embedded cluster.

Server settings for a crawler's load, and access control. The rule: these files are rewritten at every start, so that a
new version's settings apply; what the operator wrote in postgresql.conf is left alone and takes precedence.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from holdfast.db.embedded import safe_files
from holdfast.db.embedded.errors import user_name
from holdfast.db.embedded.os_user import OsUser
from holdfast.db.embedded.process import OWNER, SUPERUSER

_MB = 1 << 20
_GB = 1 << 30
_MIN_DEV_SHM = 256 * _MB

INCLUDE = """

# Holdfast's settings, written anew at every start. Your own settings go below this line: they win.
include_if_exists = 'holdfast.conf'
"""

_SETTINGS = """\
# Written by Holdfast at every start: changes here are lost. Put your own settings at the end of postgresql.conf.

# A crash of the machine must not cost a page that was acknowledged.
fsync = on
synchronous_commit = on
full_page_writes = on

# A crawler writes all the time: checkpoints far apart. WAL is not compressed: this build has pglz only, and pages of an index of
# random keys do not get smaller by it.
wal_compression = off
max_wal_size = {max_wal}MB
min_wal_size = 128MB
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9

# Memory, by what this machine (or container) has.
shared_buffers = {shared_buffers}MB
effective_cache_size = {cache}MB
maintenance_work_mem = {maintenance}MB
work_mem = 16MB

# Short statements by key, on a disk that does not seek.
max_connections = 200
random_page_cost = 1.1
jit = off
{parallel}
# Frontier rows come and go quickly: vacuum early, in small steps.
autovacuum_naptime = 15s
autovacuum_vacuum_scale_factor = 0.05
autovacuum_vacuum_insert_scale_factor = 0.1
autovacuum_analyze_scale_factor = 0.02
autovacuum_vacuum_cost_limit = 1000

# A week of logs, one file a day, each overwritten a week later.
logging_collector = on
log_directory = 'log'
log_filename = 'postgresql-%a.log'
log_truncate_on_rotation = on
log_rotation_age = 1d
log_rotation_size = 0
log_file_mode = 0600
log_timezone = 'UTC'
timezone = 'UTC'
lc_messages = 'C'
"""

# A container's 64 MB of /dev/shm are too few for parallel plans, which fail there instead of waiting.
_NO_PARALLEL = """
# /dev/shm is small here, and parallel plans keep their shared memory in it.
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
"""

_HBA = """\
# Written by Holdfast at every start: changes here are lost. Put your own lines in pg_hba.local.conf, read last.
local  all          {superuser},{owner}  {method}
local  replication  {superuser}           {method}
include_if_exists pg_hba.local.conf
"""

_IDENT = """\
# Written by Holdfast at every start: changes here are lost. Put your own lines in pg_ident.local.conf, read last.
{lines}
include_if_exists pg_ident.local.conf
"""


def write(cluster: Path, account: OsUser, *, password: bool) -> None:
    """Bring the cluster's configuration up to date. Before: the server does not run.

    After: only the cluster's owner and root can connect; with `password`, only clients that know the password.
    """
    users = [user_name(0), *([account.name] if account.name else [])]
    lines = [f'holdfast "{user}" {role}' for user in users for role in (OWNER, SUPERUSER)]
    method = "scram-sha-256" if password else "peer map=holdfast"
    texts = {
        "holdfast.conf": settings(cluster),
        "pg_hba.conf": _HBA.format(superuser=SUPERUSER, owner=OWNER, method=method),
        "pg_ident.conf": _IDENT.format(lines="\n".join(lines)),
    }
    for name, text in texts.items():
        safe_files.write(cluster / name, text, uid=account.uid, gid=account.gid)


def settings(cluster: Path) -> str:
    """The text of holdfast.conf for this machine."""
    memory = min([psutil.virtual_memory().total, *_cgroup_limits()])
    shared_buffers = _clamp(64 * _MB, memory // 8, 2 * _GB)
    return _SETTINGS.format(
        shared_buffers=shared_buffers // _MB,
        cache=max(memory // 2, shared_buffers) // _MB,
        maintenance=_clamp(64 * _MB, memory // 32, 512 * _MB) // _MB,
        max_wal=_clamp(256 * _MB, shutil.disk_usage(cluster).total // 32, 4 * _GB) // _MB,
        parallel=_NO_PARALLEL if _dev_shm() < _MIN_DEV_SHM else "",
    )


def quoted_folders(folder: Path) -> str:
    """A folder quoted for unix_socket_directories."""
    return '"' + os.fspath(folder).replace('"', '""') + '"'


def _clamp(minimum: int, value: int, maximum: int) -> int:
    return max(minimum, min(value, maximum))


def _dev_shm() -> int:
    """Size of /dev/shm in bytes; where the system has none, a size that counts as large enough."""
    try:
        return shutil.disk_usage("/dev/shm").total  # noqa: S108 - only looked at
    except OSError:
        return _MIN_DEV_SHM


def _cgroup_limits() -> Iterator[int]:
    """The memory limits of the control groups we are in (versions 1 and 2), the innermost and all around it."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:
        _, controllers, name = group.split(":", 2)
        if not controllers:
            base, file = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            base, file = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        level = base / name.lstrip("/")
        while level.is_relative_to(base):
            with suppress(OSError, ValueError):  # absent, or "max"
                yield int((level / file).read_text())
            level = level.parent
