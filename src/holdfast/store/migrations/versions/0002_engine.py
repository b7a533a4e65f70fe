"""What the engine writes: pages, crawls with their budgets, politeness clocks, robots with an expiry."""

from holdfast import failpoints
from holdfast.store.migrations.plain import run_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_sql("0002_up.sql")
    failpoints.reach("in_migration")


def downgrade() -> None:
    run_sql("0002_down.sql")
