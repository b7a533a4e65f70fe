-- 0031: alerts that an operator has acknowledged.

ALTER TABLE alerts ADD COLUMN acknowledged_at timestamptz, ADD COLUMN acknowledged_by text,
    ADD CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL));
COMMENT ON COLUMN alerts.acknowledged_at IS 'When an operator acknowledged it. It fires all the same until its cause is gone; a new firing is a new row.';
COMMENT ON COLUMN alerts.acknowledged_by IS 'The name of that operator, as in the audit log.';
