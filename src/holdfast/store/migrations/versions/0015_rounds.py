"""Rounds of a crawl, and limits that a person gave."""

from holdfast.store.migrations.plain import run_sql

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    run_sql("0015_up.sql")


def downgrade() -> None:
    run_sql("0015_down.sql")
