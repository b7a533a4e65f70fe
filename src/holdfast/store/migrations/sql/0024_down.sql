ALTER TABLE workers DROP COLUMN ended_at;
-- The nearest word that the older schema knows: the claim was taken away from a worker that was not there to release it.
UPDATE claim_log SET why = 'expired' WHERE why = 'silent';
ALTER TABLE claim_log DROP CONSTRAINT claim_log_why_check;
ALTER TABLE claim_log ADD CONSTRAINT claim_log_why_check CHECK (why IN ('released', 'expired', 'reclaimed', 'forced', 'reset'));
