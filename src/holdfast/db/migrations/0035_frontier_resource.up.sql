-- URLs that lead to no page: their lists walk these alone. No flush changes a column of them, and a page has no entry.
CREATE INDEX url_frontier_sitemaps ON url_frontier (domain_id, job_id, url_key) WHERE resource = 'sitemap';
CREATE INDEX url_frontier_images ON url_frontier (domain_id, job_id, url_key) WHERE resource = 'image';
