-- 0040: backups of this store, so that no file is deleted that a kept one names.

CREATE TABLE backups (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent_id   bigint REFERENCES backups,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    verified_at timestamptz,
    bytes       bigint CHECK (bytes >= 0),
    generation  integer NOT NULL,
    kind        varchar(20) NOT NULL CHECK (kind IN ('full', 'incremental', 'dump')),
    state       varchar(20) NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'complete', 'failed', 'deleted')),
    place       text NOT NULL,
    error       text
);
COMMENT ON TABLE backups IS 'A backup of this store. What it names on disk stays there while it is kept.';
COMMENT ON COLUMN backups.parent_id IS 'The backup that an incremental one begins at.';
COMMENT ON COLUMN backups.place IS 'The folder of the backup.';
CREATE INDEX backups_kept ON backups (started_at) WHERE state IN ('running', 'complete');
