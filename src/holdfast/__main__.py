"""`python -m holdfast` is the command `holdfast`."""

from holdfast.cli import main

main()
