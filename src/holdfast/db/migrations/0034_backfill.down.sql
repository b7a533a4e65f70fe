DROP TABLE backfill_images, backfill_domains, backfill_imports;
DROP TYPE backfill_state;
-- Without the roll-up the counters are those of the log and the frontier again.
UPDATE domains d SET pages_discovered = d.pages_discovered - r.discovered, pages_crawled = d.pages_crawled - r.pages,
    total_error_count = d.total_error_count - r.errors, images_found = d.images_found - r.images_found,
    images_stored = d.images_stored - r.images_stored
FROM (SELECT domain_id, sum(discovered)::bigint AS discovered, sum(pages)::bigint AS pages, sum(errors)::bigint AS errors,
             sum(images_found)::bigint AS images_found, sum(images_stored)::bigint AS images_stored
      FROM crawl_log_rollups GROUP BY domain_id) r WHERE d.id = r.domain_id;
DROP TABLE crawl_log_rollups;
