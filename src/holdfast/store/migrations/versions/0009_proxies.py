"""Proxies: the pools of domains, their health and their limits."""

from holdfast.store.migrations.plain import run_sql

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    run_sql("0009_up.sql")


def downgrade() -> None:
    run_sql("0009_down.sql")
