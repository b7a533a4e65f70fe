"""The streak that blocks a domain, and its last request as it is flushed."""

from holdfast.store.migrations.plain import run_sql

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    run_sql("0021_up.sql")


def downgrade() -> None:
    run_sql("0021_down.sql")
