"""The command line: thin, one file a group. Everything it does is in `control/`.

Exit codes: 0 done; 1 done in part, or a fault was found; 2 invalid usage; 3 the database cannot be used; 4 not found; 5 the present
state forbids it, or the person said no; 6 the server (`--server`) does not allow it; 7 rate limited by the server; 130 interrupted.
"""

import sys


def main() -> None:
    """Run the command line; every expected failure ends with a sentence and an exit code."""
    try:
        from holdfast.cli.program import run  # here, so that Ctrl-C while it loads is no traceback either

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
