-- What is known of links: pagination, templates, parameters that a domain drops.
ALTER TABLE domains ADD COLUMN strip_params text[];
COMMENT ON COLUMN domains.strip_params IS 'Parameters to drop from its URLs, besides those that the settings and the job name; x* is a prefix.';

ALTER TABLE url_frontier ADD COLUMN steps smallint NOT NULL DEFAULT 0, ADD COLUMN barren smallint NOT NULL DEFAULT 0;
COMMENT ON COLUMN url_frontier.steps IS 'Of a pagination, one after the other, that led here; they do not count as depth.';
COMMENT ON COLUMN url_frontier.barren IS 'Pages of that pagination before this one, in a row, that led to no other new URL.';
ALTER TABLE domain_wakes ADD COLUMN deeper smallint, ADD CHECK (deeper IS NULL OR again_after IS NOT NULL);
COMMENT ON COLUMN domain_wakes.deeper IS 'Not NULL: URLs behind again_after that were too deep, and are not deeper than this, wait again.';

CREATE TABLE url_templates (
    domain_id bigint NOT NULL,
    job_id    bigint NOT NULL,
    template  bigint NOT NULL,
    urls      integer NOT NULL,
    PRIMARY KEY (domain_id, job_id, template)
) WITH (fillfactor = 80);
COMMENT ON TABLE url_templates IS 'How many URLs of a job on a domain differ in their numbers only: what crawl.template_cap limits. Those with the only URL of their kind have none.';
COMMENT ON COLUMN url_templates.template IS 'Of 64 bits, a hash of the URL with its numbers replaced.';
