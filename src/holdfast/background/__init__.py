"""Background work beside the crawl: queues due tasks, parses fetched ones, sends webhooks, starts recurring jobs."""
