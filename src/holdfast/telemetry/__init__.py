"""The program's own log and its clock."""
