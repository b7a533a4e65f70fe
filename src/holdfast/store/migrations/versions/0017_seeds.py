"""The seeds of a job, kept with it."""

from holdfast.store.migrations.plain import run_sql

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    run_sql("0017_up.sql")


def downgrade() -> None:
    run_sql("0017_down.sql")
