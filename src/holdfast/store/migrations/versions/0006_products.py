"""What parsers found in pages: results, products and their prices."""

from holdfast.store.migrations.plain import run_sql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_sql("0006_up.sql")


def downgrade() -> None:
    run_sql("0006_down.sql")
