"""The queues of the background: Procrastinate's own schema, as its package brings it."""

from importlib.metadata import version

from alembic import op

from holdfast.store.migrations.plain import execute

revision = "0008"
down_revision = "0007"

_MADE_FOR = "3.10"
"""The version of Procrastinate whose schema this is. A later one may bring changes of it, which need a revision of their own."""

# Its triggers fire for our own inserts, too, where another search path is set.
_AT_HOME = """
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'procrastinate'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = procrastinate', function);
    END LOOP;
END
$$
"""


def upgrade() -> None:
    from procrastinate.schema import SchemaManager

    if not version("procrastinate").startswith(f"{_MADE_FOR}."):
        raise RuntimeError(f"this revision was made for Procrastinate {_MADE_FOR}, not {version('procrastinate')}")
    op.execute("CREATE SCHEMA procrastinate")
    execute(
        f"SET LOCAL search_path TO procrastinate; {SchemaManager.get_schema()}; SET LOCAL search_path TO DEFAULT; {_AT_HOME}"
    )


def downgrade() -> None:
    op.execute("DROP SCHEMA procrastinate CASCADE")
