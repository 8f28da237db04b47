"""FlagLeases: which suggestion a targeting key has got, so that it gets the same one until its lease is over.

They need no table of their own: the event of an ask says which targeting key it was for. So a study that is loaded
again, by this server or by another, knows its leases. Only a hash of a targeting key is kept.

`flag` of an ask      what it is
target                the hash; absent without a targeting key
reason                why these parameters, as OpenFeature says it (feature_flags.py)
"""

import hashlib

from rasp_tuner.feature_flags import MOST_LEASES
from rasp_tuner.service.study.suggestion_record import SuggestionRecord, put_bounded


def target_hash(study: str, targeting_key: str) -> str:
    """What is kept of a targeting key: another one in every study."""
    return hashlib.blake2b(
        targeting_key.encode("utf-8", "surrogatepass"), digest_size=16, key=study.encode()
    ).hexdigest()


class FlagLeases:
    """The latest suggestion of each targeting key, by its hash; bounded: the oldest is dropped first."""

    def __init__(self) -> None:
        self._latest: dict[str, SuggestionRecord] = {}
        self.valid_from = 0  # number of the first ask since the study was last frozen or unfrozen: no clock decides

    def add(self, record: SuggestionRecord) -> None:
        """Take note of a suggestion, if it is for a targeting key."""
        target = (record.flag or {}).get("target")
        if target is not None:
            self._latest.pop(target, None)
            put_bounded(self._latest, target, record, MOST_LEASES)

    def latest(self, target: str) -> SuggestionRecord | None:
        """The latest suggestion for a targeting key, as it was asked for; it may be answered by now."""
        return self._latest.get(target)
