"""Events without notices, which nobody waits for."""

from holdfast.store.migrations.plain import run_sql

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    run_sql("0013_up.sql")


def downgrade() -> None:
    run_sql("0013_down.sql")
