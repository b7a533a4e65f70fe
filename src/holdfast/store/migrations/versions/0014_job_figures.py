"""What was fetched for a job on a domain, whoever fetched it."""

from holdfast.store.migrations.plain import run_sql

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    run_sql("0014_up.sql")


def downgrade() -> None:
    run_sql("0014_down.sql")
