"""What stands behind the question mark of an address, checked."""

from collections.abc import Mapping

from rasp_tuner.service.service_errors import InvalidRequest
from rasp_tuner.service.study.study_summary import SORTS
from rasp_tuner.service.study_list import ListQuery

MOST_IN_PAGE, MOST_OFFSET, LONGEST_NAME = 10_000, 10**9, 64


def int_from_query(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number."""
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or not least <= int(text) <= most:
        raise InvalidRequest(f"{name} must be a whole number from {least} to {most}", name)
    return int(text)


def list_query(given: Mapping[str, str], only: str | None) -> ListQuery:
    """Which studies of those a key may see; without `limit` all of them."""
    sort = given.get("sort", "name")
    if sort not in SORTS:
        raise InvalidRequest(f"sort must be one of {', '.join(SORTS)}", "sort")
    limit = int_from_query(given, "limit", 50, 1, MOST_IN_PAGE) if "limit" in given else None
    offset = int_from_query(given, "offset", 0, 0, MOST_OFFSET)
    return ListQuery(only, given.get("find", "")[:LONGEST_NAME], sort, limit, offset)
