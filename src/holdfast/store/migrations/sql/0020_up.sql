-- What a worker does at this moment. No index names these columns, and pages keep room: a change is a HOT update.
ALTER TABLE workers SET (fillfactor = 50);
ALTER TABLE workers ADD COLUMN activity jsonb, ADD COLUMN activity_at timestamptz;
COMMENT ON COLUMN workers.activity IS 'Requests in flight and waits of its visits (model/activity.py); NULL: it does nothing.';
COMMENT ON COLUMN workers.activity_at IS 'When that was written; seconds in it count from then.';
