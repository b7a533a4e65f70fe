"""Figures and events: statistics by minute, alerts, what happens to jobs and domains."""

from holdfast.store.migrations.plain import run_sql

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    run_sql("0011_up.sql")


def downgrade() -> None:
    run_sql("0011_down.sql")
