"""Tasks with their batches and history, and who did what."""

from holdfast import failpoints
from holdfast.store.migrations.plain import run_sql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_sql("0003_up.sql")
    failpoints.reach("in_migration")


def downgrade() -> None:
    run_sql("0003_down.sql")
