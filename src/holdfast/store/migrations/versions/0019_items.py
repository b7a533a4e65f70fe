"""Items that parsers find on the pages of a crawl."""

from holdfast.store.migrations.plain import run_sql

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    run_sql("0019_up.sql")


def downgrade() -> None:
    run_sql("0019_down.sql")
