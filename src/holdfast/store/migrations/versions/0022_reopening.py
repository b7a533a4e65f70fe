"""Time reopens jobs without a new budget; the last crawl of a domain is known from its first flush on."""

from holdfast.store.migrations.plain import run_sql

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    run_sql("0022_up.sql")


def downgrade() -> None:
    run_sql("0022_down.sql")
