-- What is known of links: pagination, templates, parameters that a domain drops.
-- URLs that were folded stay as they are.
ALTER TABLE domains DROP COLUMN strip_params;
DELETE FROM domain_wakes WHERE deeper IS NOT NULL;
ALTER TABLE domain_wakes DROP COLUMN deeper;
ALTER TABLE url_frontier DROP COLUMN steps, DROP COLUMN barren;
DROP TABLE url_templates;
