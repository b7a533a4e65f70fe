-- A tenure that ended because its worker was dead. NOT VALID, then VALIDATE: the long look at the old rows blocks no claim.
ALTER TABLE claim_log DROP CONSTRAINT claim_log_why_check;
ALTER TABLE claim_log ADD CONSTRAINT claim_log_why_check
    CHECK (why IN ('released', 'expired', 'reclaimed', 'forced', 'reset', 'silent')) NOT VALID;
ALTER TABLE claim_log VALIDATE CONSTRAINT claim_log_why_check;
ALTER TABLE workers ADD COLUMN ended_at timestamptz;
COMMENT ON COLUMN workers.ended_at IS 'When the worker that bore this name ended in order; NULL: it runs, or it died.';
