-- Prices that a crawl saw stay; revision 0018 knows only tasks, so they get the number 0.
UPDATE products SET last_task_id = 0 WHERE last_task_id IS NULL;
UPDATE product_prices SET task_id = COALESCE(task_id, 0), last_task_id = COALESCE(last_task_id, 0) WHERE task_id IS NULL OR last_task_id IS NULL;
ALTER TABLE products ALTER COLUMN last_task_id SET NOT NULL;
ALTER TABLE product_prices ALTER COLUMN task_id SET NOT NULL, ALTER COLUMN last_task_id SET NOT NULL;
COMMENT ON COLUMN products.last_task_id IS 'No foreign key: that task may age out first.';
ALTER TABLE domains DROP COLUMN parser_chosen;
DROP TABLE items, page_parses;
