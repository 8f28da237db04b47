"""A schemathesis hook that writes NDJSON bodies, so that it can test the import too."""

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """The generated value as it is, or as text."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")
