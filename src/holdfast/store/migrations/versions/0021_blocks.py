"""The streak that blocks a domain has a column of its own; a function changes a status."""

from holdfast.store.migrations.plain import run_sql

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    run_sql("0021_up.sql")


def downgrade() -> None:
    run_sql("0021_down.sql")
