-- 0041: how far the log of the database is kept beside backups, and why it is not.

CREATE TABLE backup_following (
    only_row         boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    since            timestamptz,
    until            timestamptz,
    problem_since    timestamptz,
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    problem          text,
    given_up         text
);
COMMENT ON TABLE backup_following IS 'Between which seconds the store can be restored. There is no row if nothing follows.';
COMMENT ON COLUMN backup_following.problem IS 'Why the log is not copied at present.';
COMMENT ON COLUMN backup_following.given_up IS 'Why the log of the present chain of backups has an end.';
