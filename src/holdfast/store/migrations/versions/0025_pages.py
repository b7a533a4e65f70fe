"""A task is parsed at a time of its own, and keeps the time it was scheduled for."""

from holdfast.store.migrations.plain import run_sql

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    run_sql("0025_up.sql")


def downgrade() -> None:
    run_sql("0025_down.sql")
