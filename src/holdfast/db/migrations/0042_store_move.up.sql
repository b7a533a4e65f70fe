-- 0042: a store that is moved to another database, and that refuses writes from then on.

-- A row, if there is one, is the move of this store to another database.
CREATE TABLE store_move (
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at    timestamptz,
    moved_at     timestamptz,
    only_row     boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id           uuid NOT NULL DEFAULT gen_random_uuid(),
    state        varchar(20) NOT NULL DEFAULT 'copying' CHECK (state IN ('copying', 'closed', 'moved')),
    destination  text NOT NULL,
    advice       text NOT NULL
);
COMMENT ON TABLE store_move IS 'The move of this store to another database, by `holdfast db move`. No row: it is not moved.';
COMMENT ON COLUMN store_move.state IS 'copying: closed partitions are copied, all else goes on; closed: nothing can be written; moved: the other database is the store.';
COMMENT ON COLUMN store_move.destination IS 'Where to, without a password.';
COMMENT ON COLUMN store_move.advice IS 'What a user has to set to use it there.';

CREATE FUNCTION store_move_notice() RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT CASE state
        WHEN 'moved' THEN format('This store was moved to %s at %s UTC and takes no more writes: %s.',
            destination, to_char(moved_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), advice)
        WHEN 'closed' THEN format('This store is being moved to %s since %s UTC and takes no writes now: wait until `holdfast db move` has '
            'ended, run it again if it was killed, or take it back with `holdfast db move --abandon`.',
            destination, to_char(closed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'))
    END FROM store_move
$$;
COMMENT ON FUNCTION store_move_notice IS 'Why this store takes no writes; NULL: it does.';

-- The trigger is on no table until the store is closed, so it costs nothing before.
CREATE FUNCTION refuse_moved() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    notice text := store_move_notice();
BEGIN
    -- Class 57 (operator intervention) is worth another attempt, class P0 is not.
    IF notice IS NOT NULL THEN
        RAISE EXCEPTION '%', notice USING ERRCODE = CASE WHEN EXISTS (SELECT FROM store_move WHERE state = 'moved') THEN 'P0HM1' ELSE '57HM1' END;
    END IF;
    RETURN NULL;
END
$$;
