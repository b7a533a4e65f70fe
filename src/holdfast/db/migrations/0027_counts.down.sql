DROP VIEW runnable_jobs;
DROP FUNCTION job_is_runnable, forget_urls, add_counts;
