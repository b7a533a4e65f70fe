"""Requests about long work in the background; that of one noun is with the noun."""

from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, format_path
from holdfast.operations.records import Operation


def verify(*, archive: bool = True) -> RequestSpec[Operation]:
    """Verify the database in the background; `wait` for the operation."""
    return RequestSpec("POST", "/api/admin/verify", decode_one(Operation), body={"archive": archive})


def operations(*, state: str | None = None) -> ListSpec[Operation]:
    """Operations, the newest first."""
    return ListSpec("/api/operations", Operation, {"state": state})


def operation(operation: int | Operation) -> RequestSpec[Operation]:
    """The state and the result of an operation."""
    operation_id = operation.id if isinstance(operation, Operation) else operation
    return RequestSpec("GET", format_path("/api/operations/{}", operation_id), decode_one(Operation))
