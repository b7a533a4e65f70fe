"""Acceptance tests: the installed program on sites that nobody here made, beside wget and Scrapy; long, behind `make accept`."""
