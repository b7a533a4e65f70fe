-- What is known of links: pagination, templates, parameters that a domain drops.
ALTER TABLE domains ADD COLUMN strip_params text[];
COMMENT ON COLUMN domains.strip_params IS 'Parameters to drop from its URLs, besides those that the settings and the job name; x* is a prefix.';
