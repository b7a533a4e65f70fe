"""Requests about domains, their settings and their history."""

from typing import Any, Unpack

from holdfast.client.request_spec import ListSpec, RequestSpec, decode_list, decode_one, format_path, if_match, no_body
from holdfast.domains.records import (
    Domain,
    DomainChanges,
    DomainFacts,
    DomainReset,
    MaintenanceWindow,
    MatchingDomains,
    RobotsFile,
    Tenure,
    Transition,
)
from holdfast.operations.records import Operation


def domains(
    *,
    status: str | None = None,
    active: bool | None = None,
    claimed: bool | None = None,
    worker: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    order: str = "name",
) -> ListSpec[Domain]:
    """Domains; those whose names begin with `name`. The order is `name`, `crawled`, `priority`, `newest` or `oldest`."""
    held = {"claimed": claimed, "worker": worker}
    filters = {"status": status, "active": active, **held, "name": name, "parent": parent, "order": order}
    return ListSpec("/api/domains", Domain, filters)


def domain(domain: str) -> RequestSpec[DomainFacts]:
    """A domain with its configuration, work, transitions and tenures."""
    return RequestSpec("GET", format_path("/api/domains/{}", domain), decode_one(DomainFacts))


def robots(domain: str) -> RequestSpec[list[RobotsFile]]:
    """The robots.txt of each origin of a domain, as it was fetched last."""
    return RequestSpec("GET", format_path("/api/domains/{}/robots", domain), decode_list(RobotsFile))


def transitions(domain: str) -> ListSpec[Transition]:
    """Changes of the status of a domain, the newest first."""
    return ListSpec(format_path("/api/domains/{}/transitions", domain), Transition, {})


def tenures(domain: str) -> ListSpec[Tenure]:
    """Workers that held a domain, the newest first."""
    return ListSpec(format_path("/api/domains/{}/tenures", domain), Tenure, {})


def add_domain(domain: str, **changes: Unpack[DomainChanges]) -> RequestSpec[DomainFacts]:
    """Create a domain with this configuration and no URL to crawl; one that exists is unchanged."""
    return RequestSpec("POST", "/api/admin/domains", decode_one(DomainFacts), body={"domain": domain, **changes})


def configure_domain(
    domain: str, *, version: int | None = None, **changes: Unpack[DomainChanges]
) -> RequestSpec[DomainFacts]:
    """Change how a domain is crawled. With `version`: only if there was no other change since that version."""
    path = format_path("/api/admin/domains/{}", domain)
    return RequestSpec("PATCH", path, decode_one(DomainFacts), body=changes, headers=if_match(version))


def reset_domain(domain: str, *, reason: str | None = None) -> RequestSpec[DomainReset]:
    """Reset a domain, from any status; a worker that holds it is fenced off."""
    body = None if reason is None else {"reason": reason}
    return RequestSpec("POST", format_path("/api/admin/domains/{}/reset", domain), decode_one(DomainReset), body=body)


def unblock_domain(domain: str, *, reason: str | None = None) -> RequestSpec[DomainReset]:
    """Unblock a blocked or unreachable domain; only URLs that wait, were refused or could not be reached are crawled."""
    body = None if reason is None else {"reason": reason}
    return RequestSpec("POST", format_path("/api/admin/domains/{}/unblock", domain), decode_one(DomainReset), body=body)


def count_matching_domains(
    action: str,
    *,
    status: str | None = None,
    active: bool | None = None,
    claimed: bool | None = None,
    worker: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    all_domains: bool = False,
) -> RequestSpec[MatchingDomains]:
    """Count the domains that `change_matching_domains` would change: `reset`, `unblock`, `switch-off` or `switch-on`."""
    body = _bulk(action, status, active, claimed, worker, name, parent, all_domains)
    return RequestSpec("POST", "/api/admin/domains/bulk/count", decode_one(MatchingDomains), body=body)


def change_matching_domains(
    action: str,
    *,
    reason: str | None = None,
    status: str | None = None,
    active: bool | None = None,
    claimed: bool | None = None,
    worker: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    all_domains: bool = False,
) -> RequestSpec[Operation]:
    """Reset, unblock or switch all domains that match the filters, in the background; `wait` for the operation. Without a filter
    `all_domains` must be True."""
    body = _bulk(action, status, active, claimed, worker, name, parent, all_domains)
    body |= {} if reason is None else {"reason": reason}
    return RequestSpec("POST", "/api/admin/domains/bulk", decode_one(Operation), body=body)


def _bulk(
    action: str,
    status: str | None,
    active: bool | None,
    claimed: bool | None,
    worker: str | None,
    name: str | None,
    parent: str | None,
    all_domains: bool,
) -> dict[str, Any]:
    filters = {"status": status, "active": active, "claimed": claimed, "worker": worker, "name": name, "parent": parent}
    given = {field: value for field, value in filters.items() if value is not None}
    return {"action": action, **given, "all_domains": all_domains}


def remove_domain(domain: str) -> RequestSpec[None]:
    """Remove a domain with its URLs and pages; the log keeps what was fetched from it."""
    return RequestSpec("DELETE", format_path("/api/admin/domains/{}", domain), no_body)


def maintenance_windows(*, name: str | None = None) -> ListSpec[MaintenanceWindow]:
    """Domains with maintenance windows; those whose names begin with `name`."""
    return ListSpec("/api/maintenance-windows", MaintenanceWindow, {"name": name})


def set_maintenance_window(domain: str, window: str | None, *, version: int | None = None) -> RequestSpec[DomainFacts]:
    """Set when a domain is not crawled, such as `mon-fri 08:00-18:00 Europe/Berlin`; None: it may be crawled at any time."""
    path = format_path("/api/admin/domains/{}/maintenance-window", domain)
    if window is None:
        return RequestSpec("DELETE", path, decode_one(DomainFacts), headers=if_match(version))
    return RequestSpec("PUT", path, decode_one(DomainFacts), body={"window": window}, headers=if_match(version))


def recalculate_priorities() -> RequestSpec[Operation]:
    """Recalculate the priorities of all domains in the background; `wait` for the operation."""
    return RequestSpec("POST", "/api/admin/priorities", decode_one(Operation))
