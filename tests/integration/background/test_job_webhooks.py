"""The end and the reopening of a job are sent as signed webhooks, whichever process caused them."""

import psycopg

from holdfast.db import crawls as store_crawls
from holdfast.db import job_ends, jobs
from holdfast.jobs.service import JobService
from holdfast.model.job import JobSpec
from holdfast.webhooks import queries
from holdfast.webhooks.records import DeliveryFilter
from tests.integration.background.test_upkeep import background
from tests.support.crawls import Crawls, wait_for
from tests.support.receiver import SECRET, Receiver

URL = "https://hooks.example/jobs"


def events(connection: psycopg.Connection) -> list[tuple[str, object]]:
    return [(one.event, one.body["reason"]) for one in reversed(queries.page(connection, DeliveryFilter()).rows)]


def job(connection: psycopg.Connection, name: str = "news") -> int:
    return store_crawls.create(connection, name=name, spec=JobSpec(), fingerprint=None).id


def test_each_change_has_one_message_and_a_rolled_back_one_has_none(crawls: Crawls) -> None:
    connection = crawls.connection
    desk = JobService(crawls.database, "ann")
    quiet = job(connection, "quiet")
    desk.pause(quiet)
    assert events(connection) == [], "nobody asked for them"
    queries.tell_jobs(connection, URL)
    number = job(connection)
    crawl, _ = store_crawls.begin(connection, number)
    assert events(connection) == [], "it has only begun"
    job_ends.finish(connection, crawl)
    with connection.transaction(force_rollback=True):
        jobs.reopen(connection, number, "never")
    jobs.reopen(connection, number, "a cool-down ended")
    desk.pause(number)
    desk.resume(number)
    desk.cancel(number)
    desk.delete(number)
    told = [("completed", None), ("reopened", "a cool-down ended"), ("paused", None), ("cancelled", None)]
    assert events(connection) == [(f"job.{what}", why) for what, why in told]
    last = queries.page(connection, DeliveryFilter()).rows[0]
    assert (last.job_id, last.task_id, last.alert_id, last.url) == (number, None, None, URL)
    assert (last.body["name"], last.body["state"], last.body["was"]) == ("news", "cancelled", "pending")
    queries.tell_jobs(connection, None)
    desk.resume(quiet)
    desk.cancel(quiet)
    assert len(events(connection)) == len(told)


def test_a_failed_job_is_told_with_its_cause_to_a_receiver(crawls: Crawls) -> None:
    with Receiver() as receiver:
        crawls.set(webhook={"jobs_url": receiver.url("/jobs"), "secret": SECRET}, fetch={"allow_private": True})
        with background(crawls):
            wait_for(lambda: crawls.value("SELECT count(*) FROM webhook_receivers") == 1, "the address in the store")
            crawls.set(fetch={"allow_private": False})  # for the crawl; the sender has begun
            crawls.crawl("http://127.0.0.1:1/", job="nothing", robots=False)
            wait_for(lambda: receiver.got, "a message")
            wait_for(
                lambda: queries.page(crawls.connection, DeliveryFilter()).rows[0].delivered_at,
                "the message to be taken",
            )
    (got,) = receiver.got
    assert got.signed_with(SECRET)
    assert got.message["event"] == "job.failed"
    assert got.message["data"]["name"] == "nothing"
    assert "no page was fetched" in got.message["data"]["reason"]
