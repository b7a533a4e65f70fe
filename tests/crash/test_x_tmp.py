from tests.crash.test_crawl_mutants import *
from tests.crash.conftest import *
def test_x(plan, ground, connection, until_the_end):
    with WebProcess(plan.web) as web, ground:
        begin(plan, ground, web)
        connection.execute("ALTER TABLE url_frontier DROP CONSTRAINT url_frontier_pkey")
        print(connection.execute("select indexdef from pg_indexes where tablename='url_frontier'").fetchall())
        for _ in range(2):
            _dies(until_the_end(worker(plan, ground, "--failpoint", "after_commit:2", program=mutant("no_unique_key"))))
            print(connection.execute("select count(*), count(distinct (domain_id,job_id,url_key)) from url_frontier").fetchall(), connection.execute("select count(*) from crawl_log").fetchall())
        print(ground.logs()[-3000:])
        assert 0
