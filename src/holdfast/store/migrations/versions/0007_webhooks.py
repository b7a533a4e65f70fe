"""Webhooks: what is to be told to whom."""

from holdfast.store.migrations.plain import run_sql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run_sql("0007_up.sql")


def downgrade() -> None:
    run_sql("0007_down.sql")
