"""Readers of what other tools left: log rows from CSV and Parquet, responses from WARC files and Scrapy's cache."""
