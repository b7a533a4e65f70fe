-- Whoever serves listeners looks at the log four times a second; nobody waits for a notice, and each takes a lock that all
-- transactions with one share.
DROP TRIGGER events_tell ON events;
DROP FUNCTION tell_of_events();
