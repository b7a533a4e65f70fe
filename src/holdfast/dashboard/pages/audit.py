"""The audit log: who changed what, when."""

from fastapi import Response

from holdfast.api.app_services import Services
from holdfast.api.forms import Form
from holdfast.api.pagination import decode_list_cursor
from holdfast.audit.records import AuditFilter, Entry
from holdfast.audit.service import AuditService
from holdfast.dashboard.lists import ROWS, read_list
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page

router = page_router()


@router.get("/audit")
def audit(context: Context, services: Services) -> Response:
    """The log, the newest first, by actor, object, action and time."""

    def read(form: Form) -> Page[Entry]:
        where = AuditFilter(
            form.text("actor"),
            form.text("kind"),
            form.text("object_id"),
            form.text("action"),
            form.moment("since", "Since"),
            form.moment("until", "Until"),
        )
        after = decode_list_cursor("audit", "newest", form.text("cursor"))
        return AuditService(services.database).page(where, after=after, limit=ROWS)

    shown = read_list(context, read)
    return context.page("audit/list.html", notice=shown.notice, shown=shown)
