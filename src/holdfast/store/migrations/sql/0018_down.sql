-- Headers, cookies and credentials of jobs and domains.
DROP TABLE domain_secrets;
DROP TABLE job_secrets;
