"""What happens beside the crawl: due tasks are queued, fetched ones parsed, webhooks sent, recurring jobs begun."""
