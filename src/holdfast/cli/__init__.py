"""The command line: one module a group of commands. The work is done in `control/`.

Exit codes: 0 done; 1 done in part, or a check failed; 2 invalid usage; 3 no database; 4 not found; 5 not possible in the
present state, or not confirmed; 6 not allowed by the server; 7 rate limited by the server; 130 interrupted.
"""

import gc
import sys


def main() -> None:
    """Run the command line; every expected failure ends with a sentence and an exit code.

    The garbage collector is off until the command is imported: imports leave no garbage, and a search among their objects costs a
    seventh of the start.
    """
    gc.disable()
    try:
        from holdfast.cli.app import run  # here, so that Ctrl-C during the import prints no traceback

        code = run(sys.argv[1:], on_imported=_collect_from_now_on)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _collect_from_now_on() -> None:
    """Switch the garbage collector on, for objects that are created from now on."""
    gc.freeze()
    gc.enable()
