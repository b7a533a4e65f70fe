"""Tasks are crawled by the same engine as everything else."""

from holdfast.store.migrations.plain import run_sql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    run_sql("0005_up.sql")


def downgrade() -> None:
    run_sql("0005_down.sql")
