"""Headers, cookies and credentials of jobs and domains."""

from holdfast.store.migrations.plain import run_sql

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    run_sql("0018_up.sql")


def downgrade() -> None:
    run_sql("0018_down.sql")
