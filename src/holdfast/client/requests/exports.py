"""Requests for exports."""

import httpx

from holdfast.client.job_ref import JobRef, optional_job
from holdfast.client.request_spec import RequestSpec, format_path


def export(
    kind: str,
    format: str,  # noqa: A002 — as the API has it
    *,
    job: JobRef | None = None,
    domain: str | None = None,
    text: bool = False,
) -> RequestSpec[httpx.Response]:
    """Export `pages`, `documents`, `items`, `products`, `links`, `urls` or the `log`, as `jsonl`, `csv` or `parquet`."""
    query = {"format": format, "job": optional_job(job), "domain": domain, "text": text}
    return RequestSpec(
        "GET",
        format_path("/api/exports/{}", kind),
        lambda answer: answer,
        query,
        headers={"Accept": "*/*"},
        stream=True,
    )
