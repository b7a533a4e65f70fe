"""Domains of a server."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from holdfast.cli.remote import rows
from holdfast.cli.remote.secrets import as_sent
from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.client.request_spec import format_path
from holdfast.domains.service import ResetReport
from holdfast.model.domain import Status
from holdfast.model.domain_name import canonical_domain
from holdfast.model.request_secrets import RequestSecrets

_KNOWN: Final = ("block_reason_code", "images_stored", "image_yield_rate")
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RemoteDomains:
    """As `domains/service` has them. Who does it is whoever the key belongs to, not `actor`."""

    client: Client

    def listing(self, status: Status | None, limit: int) -> list[rows.Row]:
        """Domains, the ones crawled last first."""
        found = rows.listed(self.client, "/api/domains", {"status": status, "order": "crawled"}, limit)
        found.sort(key=lambda row: (row["last_visit_ended_at"] or _NEVER, row["priority"], -row["id"]), reverse=True)
        return [_as_stored(rows.row(row, _KNOWN)) for row in found]

    def counts(self) -> dict[str, int]:
        """How many domains are in each status; every status is named."""
        return dict.fromkeys(Status, 0) | self.client.stats().domains

    def info(self, name: str) -> rows.Row:
        """Everything about one domain."""
        raw = self.client.request("GET", format_path("/api/domains/{}", canonical_domain(name)))
        parts = {part: raw[part] for part in ("work", "transitions", "tenures")}
        return rows.row({**raw["facts"], **parts})

    def reset(self, name: str, why: str, *, actor: str) -> ResetReport:  # noqa: ARG002 — see above; likewise below
        """Start a domain over, from any status."""
        path = format_path("/api/admin/domains/{}/reset", canonical_domain(name))
        return read(ResetReport, self.client.request("POST", path, body={"reason": why}))

    def unblock(self, name: str, why: str, *, actor: str) -> ResetReport:  # noqa: ARG002
        """Let a blocked or unreachable domain be tried again."""
        path = format_path("/api/admin/domains/{}/unblock", canonical_domain(name))
        return read(ResetReport, self.client.request("POST", path, body={"reason": why}))

    def configure(
        self,
        name: str,
        changes: Mapping[str, object],
        *,
        actor: str,  # noqa: ARG002
        secrets: RequestSecrets | None = None,
        plain_http: bool = False,
    ) -> rows.Row:
        """Change columns of a domain's configuration, and what is sent with requests to it; the domain afterwards."""
        body = dict(changes)
        if secrets:
            body |= {**(as_sent(secrets) or {}), "plain_http": plain_http}
        raw = self.client.request("PATCH", format_path("/api/admin/domains/{}", canonical_domain(name)), body=body)
        return rows.row(raw["facts"])


def _as_stored(row: rows.Row) -> rows.Row:
    """The store leaves open whether a claim that nobody has is expired, and whether one stays blocked who is not."""
    held, cooling = row["claimed_by"] is not None, row["stays_blocked"] or row["next_crawl_after"] is not None
    return row | {
        "claim_expired": row["claim_expired"] if held else None,
        "stays_blocked": row["stays_blocked"] if cooling else None,
    }
