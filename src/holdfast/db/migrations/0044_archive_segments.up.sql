-- 0044: which machine has which segment of the archive, and which of them the object store has.

-- A row is a data folder that has written segments for an object store.
CREATE TABLE archive_machines (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seen_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    lost_at        timestamptz,
    problem_since  timestamptz,
    waiting_bytes  bigint NOT NULL DEFAULT 0 CHECK (waiting_bytes >= 0),
    folder_id      varchar(64) NOT NULL UNIQUE,
    name           varchar(150) NOT NULL,
    problem        text
);
COMMENT ON TABLE archive_machines IS 'A machine with an archive folder whose segments go to an object store.';
COMMENT ON COLUMN archive_machines.folder_id IS 'The content of the file machine-id in its archive folder: two machines may have one name.';
COMMENT ON COLUMN archive_machines.lost_at IS 'When a person said that it is gone for good; NULL again as soon as it is heard of.';
COMMENT ON COLUMN archive_machines.problem IS 'Why its segments cannot be uploaded now, since problem_since.';

-- A row is a file of the archive. It is written before the first row that points into the file.
CREATE TABLE archive_segments (
    machine_id   bigint NOT NULL REFERENCES archive_machines,
    opened_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    uploaded_at  timestamptz,
    lost_at      timestamptz,
    bytes        bigint CHECK (bytes >= 0),
    found        boolean NOT NULL DEFAULT false,
    state        varchar(10) NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'local', 'uploaded', 'lost')),
    segment      text PRIMARY KEY,
    sha256       bytea CHECK (octet_length(sha256) = 32),
    CHECK (state <> 'uploaded' OR (bytes IS NOT NULL AND sha256 IS NOT NULL AND uploaded_at IS NOT NULL))
);
COMMENT ON TABLE archive_segments IS 'The manifest of the archive, written only where an object store is set.';
COMMENT ON COLUMN archive_segments.state IS 'open and local: on its machine only. uploaded: every machine can read it. lost: gone with its machine.';
COMMENT ON COLUMN archive_segments.found IS 'It was written before there was an object store, and is uploaded after the others.';
CREATE INDEX archive_segments_waiting ON archive_segments (machine_id, found, opened_at) WHERE state IN ('open', 'local');
CREATE INDEX archive_segments_lost ON archive_segments (segment) WHERE state = 'lost';
