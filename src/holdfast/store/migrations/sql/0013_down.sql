CREATE FUNCTION tell_of_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY holdfast_events;
    RETURN NULL;
END
$$;
CREATE TRIGGER events_tell AFTER INSERT ON events
    FOR EACH ROW WHEN (NEW.kind IN ('job', 'alert')) EXECUTE FUNCTION tell_of_events();
