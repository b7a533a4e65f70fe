"""Ends, pauses and reopenings of jobs are told by webhook."""

from holdfast.store.migrations.plain import run_sql

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    run_sql("0026_up.sql")


def downgrade() -> None:
    run_sql("0026_down.sql")
