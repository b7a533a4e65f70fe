"""The API: answers that are kept, limits, long work; orders that lists are read in."""

from holdfast.store.migrations.plain import run_sql

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    run_sql("0012_up.sql")


def downgrade() -> None:
    run_sql("0012_down.sql")
