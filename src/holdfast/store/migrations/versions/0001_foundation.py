"""Domains held by fenced claims, the jobs and frontier that hang on them, and the tables around them."""

from holdfast.store.migrations.plain import run_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_sql("0001_up.sql")


def downgrade() -> None:
    run_sql("0001_down.sql")
