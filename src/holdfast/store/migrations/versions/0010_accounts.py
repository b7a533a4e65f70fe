"""Accounts: users, their sessions and API keys, failed logins."""

from holdfast.store.migrations.plain import run_sql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    run_sql("0010_up.sql")


def downgrade() -> None:
    run_sql("0010_down.sql")
