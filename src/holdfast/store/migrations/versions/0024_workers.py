"""Workers that take over and share out."""

from holdfast.store.migrations.plain import run_sql

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    run_sql("0024_up.sql")


def downgrade() -> None:
    run_sql("0024_down.sql")
