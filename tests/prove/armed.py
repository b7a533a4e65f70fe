"""Holdfast with a failpoint armed, for commands that have no option for it.

python -m tests.prove.armed FAILPOINT NTH ARGUMENTS OF HOLDFAST …
"""

import sys

from holdfast import failpoints
from holdfast.cli.app import run

if __name__ == "__main__":
    failpoints.arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(run(sys.argv[3:]))
