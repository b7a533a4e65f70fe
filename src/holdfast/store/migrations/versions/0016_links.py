"""What is known of links: pagination, templates, parameters that a domain drops."""

from holdfast.store.migrations.plain import run_sql

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    run_sql("0016_up.sql")


def downgrade() -> None:
    run_sql("0016_down.sql")
