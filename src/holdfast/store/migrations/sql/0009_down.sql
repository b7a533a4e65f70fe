-- 0009 taken back

DROP VIEW proxy_totals;
DROP TABLE proxy_blocks;
DROP FUNCTION proxy_failures(integer, boolean, integer, integer);
DROP FUNCTION proxy_pause(integer, interval, interval);
DROP INDEX domains_proxied;
ALTER TABLE domains DROP COLUMN proxy_use, DROP COLUMN proxy_direct, DROP COLUMN proxy_resolves, DROP COLUMN proxy_country,
    DROP COLUMN proxy_sticky;
DROP TABLE domain_proxies;
DROP TABLE proxies;
