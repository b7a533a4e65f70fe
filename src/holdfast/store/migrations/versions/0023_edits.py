"""Edits by people reach visits under way, and the delay in force is known."""

from holdfast.store.migrations.plain import run_sql

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    run_sql("0023_up.sql")


def downgrade() -> None:
    run_sql("0023_down.sql")
