-- 0006: what parsers found in pages: results, products and their prices.

CREATE TYPE product_availability AS ENUM ('in_stock', 'limited', 'online_only', 'in_store_only', 'made_to_order', 'pre_order', 'pre_sale',
    'back_order', 'reserved', 'out_of_stock', 'sold_out', 'discontinued');

CREATE TABLE parse_results (
    task_id         bigint PRIMARY KEY REFERENCES crawl_tasks ON DELETE CASCADE,
    fetched_at      timestamptz NOT NULL,
    parsed_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt         integer NOT NULL,
    parser          varchar(100) NOT NULL,
    parser_version  varchar(100) NOT NULL,
    product_keys    bytea[] NOT NULL,
    data            jsonb NOT NULL,
    products        jsonb NOT NULL,
    CONSTRAINT result_is_an_object CHECK (jsonb_typeof(data) = 'object'),
    CONSTRAINT result_has_its_products CHECK (jsonb_typeof(products) = 'array' AND jsonb_array_length(products) = cardinality(product_keys))
);
COMMENT ON TABLE parse_results IS 'What a parser found in the page of a task, the last time that it succeeded.';
COMMENT ON COLUMN parse_results.fetched_at IS 'When the page was fetched, by the database''s clock: not when it was parsed.';
COMMENT ON COLUMN parse_results.product_keys IS 'The identity_key of each product, in the order of products.';

CREATE TABLE products (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No cascade: a domain may have a million products. Who deletes it deletes them first, in chunks.
    domain_id      bigint NOT NULL REFERENCES domains,
    first_seen_at  timestamptz NOT NULL,
    last_seen_at   timestamptz NOT NULL,
    last_task_id   bigint NOT NULL,
    rating_count   integer CHECK (rating_count >= 0),
    availability   product_availability,
    page_key       bytea NOT NULL CHECK (octet_length(page_key) = 16),
    identity_key   bytea NOT NULL CHECK (octet_length(identity_key) = 16),
    currency       char(3),
    gtin           varchar(14),
    sku            varchar(200),
    price          numeric CHECK (price >= 0 AND price < 1000000000000 AND scale(price) <= 6),
    rating_value   numeric,
    rating_best    numeric,
    name           text NOT NULL CHECK (name <> ''),
    brand          text,
    url            text,
    page_url       text NOT NULL,
    identity       text NOT NULL,
    images         text[] NOT NULL DEFAULT '{}',
    words          tsvector GENERATED ALWAYS AS (
        setweight(to_tsvector('simple'::regconfig, name), 'A') || setweight(to_tsvector('simple'::regconfig, COALESCE(brand, '')), 'B')
        || setweight(to_tsvector('simple'::regconfig, COALESCE(sku, '') || ' ' || COALESCE(gtin, '')), 'C')) STORED,
    CONSTRAINT product_is_known_once UNIQUE (domain_id, page_key, identity_key),
    CONSTRAINT product_seen_in_order CHECK (first_seen_at <= last_seen_at),
    CONSTRAINT product_rating_is_whole CHECK (num_nonnulls(rating_value, rating_best) IN (0, 2))
) WITH (fillfactor = 80);
COMMENT ON TABLE products IS 'A product on a page, as the newest fetch of the page that has it says it.';
COMMENT ON COLUMN products.identity_key IS 'First 16 bytes of SHA-256 of identity, by which the product is known again on its page.';
COMMENT ON COLUMN products.page_key IS 'The key of the page''s URL, as in crawl_tasks.url_hash.';
COMMENT ON COLUMN products.last_seen_at IS 'Of the fetch. Likewise first_seen_at: when it was parsed does not count.';
COMMENT ON COLUMN products.last_task_id IS 'No foreign key: that task may age out first.';

CREATE INDEX products_words ON products USING gin (words);
CREATE INDEX products_domain ON products (domain_id, id);
CREATE INDEX products_brand ON products (lower(brand), id) WHERE brand IS NOT NULL;
CREATE INDEX products_price ON products (price, currency) WHERE price IS NOT NULL;

CREATE TABLE product_prices (
    product_id    bigint NOT NULL REFERENCES products ON DELETE CASCADE,
    fetched_at    timestamptz NOT NULL,
    seen_until    timestamptz NOT NULL,
    task_id       bigint NOT NULL,
    last_task_id  bigint NOT NULL,
    availability  product_availability,
    currency      char(3),
    price         numeric CHECK (price >= 0),
    PRIMARY KEY (product_id, fetched_at),
    CONSTRAINT price_seen_in_order CHECK (fetched_at <= seen_until)
) WITH (fillfactor = 90);
COMMENT ON TABLE product_prices IS 'A product''s price, currency and availability from one fetch to another, in which they did not change.';
COMMENT ON COLUMN product_prices.seen_until IS 'The last fetch that said the same, of last_task_id. Nothing is claimed from there to the next row.';
