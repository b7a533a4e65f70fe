"""Jobs, their crawls and summaries, and the filter of their list."""
