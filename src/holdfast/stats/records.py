"""Statistics of the crawl."""
