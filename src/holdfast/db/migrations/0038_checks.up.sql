-- As those of sitemaps and images (docs/adr/0074). A step of its own: a transaction cannot use the value of an enum that it adds.
CREATE INDEX url_frontier_checks ON url_frontier (domain_id, job_id, url_key) WHERE resource = 'check';
