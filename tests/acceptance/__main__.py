"""`make accept`: the acceptance tests that have not passed at this commit yet.

    python -m tests.acceptance [options of pytest]

Exit code 2 if a program or a documentation tree is missing; the one line that is printed installs it.
"""

import subprocess
import sys
from pathlib import Path

from benchmarks.speed.contenders import Scrapy
from tests.acceptance.requirements import missing

HERE = Path(__file__).parent


def main() -> int:
    """Check what is needed, then run pytest."""
    if packages := missing():
        print(f"apt-get install --yes --no-install-recommends {' '.join(packages)}", file=sys.stderr)
        return 2
    if problem := Scrapy(Path()).missing():
        print(f"Scrapy cannot be installed into .peers: {problem}", file=sys.stderr)
        return 2
    given = sys.argv[1:]
    where = [] if any(word.partition("::")[0].endswith(".py") for word in given) else [str(HERE)]
    return subprocess.run([sys.executable, "-m", "pytest", "-m", "acceptance", *where, *given], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
