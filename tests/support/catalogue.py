"""The schema of a database as text, read from PostgreSQL's catalogue: one line for each thing that can differ.

Order of columns counts. Of the weekly partitions of the log only the default one is shown. Bodies of functions are shown as their MD5.
"""

import re
from typing import Final

import psycopg

_RELATION: Final = """
    FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace AND n.nspname = 'public'
"""
_OURS: Final = "NOT (r.relispartition AND r.relname ~ '_[0-9]')"
_LINES: Final = {
    "relation": f"""
        SELECT r.relname, format('kind=%s persistence=%s options=%s owner=%s privileges=%s partition=%s key=%s comment=%s',
            r.relkind, r.relpersistence, r.reloptions, pg_get_userbyid(r.relowner), r.relacl, pg_get_expr(r.relpartbound, r.oid),
            pg_get_partkeydef(r.oid), obj_description(r.oid, 'pg_class'))
        {_RELATION} WHERE r.relkind IN ('r', 'p', 'v', 'S') AND {_OURS}
    """,
    "column": f"""
        SELECT r.relname || '.' || lpad(a.attnum::text, 2, '0') || ' ' || a.attname,
            format('%s%s storage=%s compression=%s collation=%s identity=%s generated=%s default=%s privileges=%s comment=%s',
                format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' NOT NULL' END, a.attstorage, a.attcompression,
                (SELECT collname FROM pg_collation c WHERE c.oid = a.attcollation), a.attidentity, a.attgenerated,
                pg_get_expr(d.adbin, d.adrelid), a.attacl, col_description(r.oid, a.attnum))
        {_RELATION} JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum WHERE r.relkind IN ('r', 'p', 'v') AND {_OURS}
    """,
    "constraint": f"""
        SELECT r.relname || '.' || c.conname, pg_get_constraintdef(c.oid) || CASE WHEN c.convalidated THEN '' ELSE ' NOT VALID' END
        {_RELATION} JOIN pg_constraint c ON c.conrelid = r.oid AND c.contype <> 'n' WHERE {_OURS}
    """,
    "index": f"""
        SELECT i.relname, pg_get_indexdef(i.oid) || format(' valid=%s clustered=%s', x.indisvalid, x.indisclustered)
        {_RELATION} JOIN pg_index x ON x.indrelid = r.oid JOIN pg_class i ON i.oid = x.indexrelid WHERE {_OURS}
    """,
    "trigger": f"""
        SELECT r.relname || '.' || t.tgname, pg_get_triggerdef(t.oid) || format(' enabled=%s', t.tgenabled)
        {_RELATION} JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal WHERE {_OURS}
    """,
    "view": f"SELECT r.relname, pg_get_viewdef(r.oid) {_RELATION} WHERE r.relkind IN ('v', 'm')",
    "sequence": """
        SELECT sequencename, format('%s start=%s min=%s max=%s by=%s cycle=%s cache=%s', data_type, start_value, min_value, max_value,
            increment_by, cycle, cache_size) FROM pg_sequences WHERE schemaname = 'public'
    """,
    "type": """
        SELECT t.typname, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
        FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = 'public'::regnamespace GROUP BY 1
    """,
    "function": """
        SELECT p.oid::regprocedure::text, format(
            'kind=%s arguments=(%s) returns=%s %s volatile=%s strict=%s parallel=%s definer=%s cost=%s rows=%s settings=%s privileges=%s '
            'body=%s aggregate=%s comment=%s', p.prokind, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname,
            p.provolatile, p.proisstrict, p.proparallel, p.prosecdef, p.procost, p.prorows, p.proconfig, p.proacl, md5(p.prosrc),
            (SELECT format('%s %s %s', a.aggtransfn, a.aggtranstype::regtype, a.agginitval) FROM pg_aggregate a WHERE a.aggfnoid = p.oid),
            obj_description(p.oid, 'pg_proc'))
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'public'::regnamespace
    """,
    "rule": "SELECT tablename || '.' || rulename, definition FROM pg_rules WHERE schemaname = 'public'",
    "policy": "SELECT tablename || '.' || policyname, cmd FROM pg_policies WHERE schemaname = 'public'",
    "statistics": "SELECT stxname::text, pg_get_statisticsobjdef(oid) FROM pg_statistic_ext",
    "schema": "SELECT nspname::text, nspacl::text FROM pg_namespace WHERE nspname = 'public'",
}
_EMPTY: Final = re.compile(r"\b\w+=(?=\s|$)")


def catalogue(connection: psycopg.Connection) -> str:
    """Everything that the schema `public` holds, sorted."""
    lines = [
        f"{kind} {name}: {' '.join(_EMPTY.sub('', str(text)).split())}"
        for kind, query in _LINES.items()
        for name, text in connection.execute(query.encode()).fetchall()
    ]
    return "\n".join(sorted(lines)) + "\n"
