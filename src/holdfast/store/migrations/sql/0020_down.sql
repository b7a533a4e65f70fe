-- What a worker does at this moment.
ALTER TABLE workers DROP COLUMN activity, DROP COLUMN activity_at;
ALTER TABLE workers RESET (fillfactor);
