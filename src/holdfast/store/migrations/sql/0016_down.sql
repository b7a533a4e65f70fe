-- What is known of links: pagination, templates, parameters that a domain drops.
-- URLs that were folded stay as they are.
ALTER TABLE domains DROP COLUMN strip_params;
