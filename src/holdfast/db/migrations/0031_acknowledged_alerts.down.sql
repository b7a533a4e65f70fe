ALTER TABLE alerts DROP COLUMN acknowledged_at, DROP COLUMN acknowledged_by;
