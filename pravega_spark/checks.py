"""Verification of a root, whoever wrote it. `engine.admin.verify` is told of streams here: what their entries in tables
mean, and what their segments hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.admin.checks.content import ContentCheck
from engine.admin.progress import Progress, no_progress
from engine.admin.verify import EntryCheck, Report, verify
from engine.root import Root
from pravega_spark.client.groups.entry import GROUPS
from pravega_spark.client.groups.state import GroupState
from pravega_spark.streams.archived_root import ArchivedRoot
from pravega_spark.streams.archived_verification import verify_archive
from pravega_spark.streams.changes import NUMBERS, STREAMS, SUBSCRIBERS, TRANSACTIONS
from pravega_spark.streams.stream_record import StreamRecord, decode_number
from pravega_spark.streams.subscribers import decode_subscriber
from pravega_spark.streams.transactions import TransactionRecord
from pravega_spark.streams.verification import check_events, check_recorded

CONTENT_CHECKS: Sequence[ContentCheck] = (check_events, check_recorded)

ENTRY_CHECKS: Mapping[str, EntryCheck] = {
    STREAMS: lambda key, value, version: StreamRecord.decode(value, version, key),
    NUMBERS: lambda key, value, version: decode_number(value, key),
    TRANSACTIONS: lambda key, value, version: TransactionRecord.decode(value, version, key),
    SUBSCRIBERS: lambda key, value, version: decode_subscriber(value, key),
    GROUPS: lambda key, value, version: GroupState.decode(value, key),
}


def verify_root(root: Root, progress: Progress = no_progress, deep: bool = False) -> Report:
    """Look at everything in a root, one of ours or the long-term storage of a Pravega. Raises StorageError."""
    if isinstance(root, ArchivedRoot):
        return verify_archive(root, progress, deep)
    return verify(root, progress, deep, CONTENT_CHECKS, entry_checks=ENTRY_CHECKS)
