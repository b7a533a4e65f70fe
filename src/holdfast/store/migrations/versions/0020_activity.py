"""What a worker does at this moment."""

from holdfast.store.migrations.plain import run_sql

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    run_sql("0020_up.sql")


def downgrade() -> None:
    run_sql("0020_down.sql")
