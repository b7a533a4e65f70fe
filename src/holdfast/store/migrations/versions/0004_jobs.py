"""Jobs that can be paused, deleted and scheduled."""

from holdfast.store.migrations.plain import run_sql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_sql("0004_up.sql")


def downgrade() -> None:
    run_sql("0004_down.sql")
