"""Remedies for errors whose class has no message of its own, or whose message does not include the remedy.

tests/docs fails for an error that has neither a message nor a line here, and for a line without an error.
"""

from __future__ import annotations

INTERNAL = "Nothing: the program handles it. If it reaches you, that is a bug; please report it with its traceback."

REMEDIES: dict[str, str] = {
    # chunkstore
    "Damaged": "Catch it to handle all errors about missing or damaged objects in the storage.",
    "PutUnknown": INTERNAL,
    "ArchiveDamaged": "The message names the object. Restore it from a copy of the folder.",
    # pravega_spark
    "StreamError": "Catch it to handle all errors of streams; the message of each has the remedy.",
    "Refusal": "The server answers with its status and message, which says what to send instead, or when.",
    "Unfit": "The server answers with status 400. The message names the part of the request that is wrong.",
    "LargeEventError": "Catch it to handle all errors of large events; the message of each has the remedy.",
    "ByteStreamError": (
        "Byte streams need a stream with one segment that holds no events; the message says what is wrong."
    ),
    "TooFewSegments": (
        "Lower the minimum of the scaling policy first (`pravega-spark stream update NAME --min-segments N`, "
        "`update_stream_with_policy`), or keep more segments."
    ),
    "UnencodableValue": "The message names the column, and the type to which it can be cast.",
    "InvalidValueSchema": "The message has the field or the place, and the types that a value can have.",
    "InvalidStreamCut": (
        "Use a cut of this stream, from `stream_info`, `stream_cut_at`, or table `StreamCuts`. "
        "After a stream was deleted and created again, its earlier cuts are invalid."
    ),
    "InvalidEvent": (
        "The bytes of a segment are not events. Run `pravega-spark verify --deep`; a byte stream "
        "cannot be read as events."
    ),
    "InvalidIndex": (
        "The index segment is damaged. Run `pravega-spark verify`, and restore the objects that it names from a backup."
    ),
    "Refused": "The message has the reason, and the option (often `--yes`) that allows the command.",
    "WrongUsage": "Run `pravega-spark COMMAND --help`.",
    "ImportRefused": "The message has the reason and the object. Nothing was changed.",
    "BrokenEvent": INTERNAL,
    "AlreadyWritten": INTERNAL,
    # engine
    "HeaderRefused": (
        "Flush the container first (`pravega-spark container flush`). A segment that shares chunks with "
        "other segments cannot have a header."
    ),
    "EngineError": "Catch it to handle all errors of the engine.",
    "DataCorruption": (
        "The message names the object. Run `pravega-spark verify --deep`, and restore the object from a "
        "copy; see [When something fails](operations.md#when-something-fails)."
    ),
    "ObjectLost": "As for `DataCorruption`.",
    "BadSignature": "The message names the object; see [Signatures](security.md#signatures).",
    "FrameForged": "As for `BadSignature`; see also [When something fails](operations.md#when-something-fails).",
    "UnknownFormat": "Upgrade this installation: a newer version wrote the object. Nothing is damaged.",
    "OutcomeUnknown": (
        "Find out before you repeat it: read the stream. Or write again with the same id and number "
        "(`txn_app_id`, an upload with a name), which is never applied twice."
    ),
    "ContainerOffline": ("`pravega-spark container list` shows the reason. Fix it, then open the container again."),
    "NotPrimary": "Another process writes to the container, which this one held exclusively. Open it again.",
    "InvalidOperation": (
        "The message names the operation, the field and the value. Use a value that the log can hold. Nothing changed."
    ),
    "Rejected": "Catch it to handle all rejections by a container's state. Nothing was changed.",
    "SegmentNotFound": "Find the name with `pravega-spark segment list`.",
    "SegmentExists": "Open the segment, or delete it first.",
    "SegmentSealed": "Write to the stream instead of the segment: its newer segments take the event.",
    "SegmentTruncated": "Read from its first readable offset, or from the head of the stream.",
    "BadOffset": "Read the segment's present length, and append there.",
    "BadAttributeUpdate": "Read the attribute's present value, and decide again.",
    "BadKeyVersion": "Read the entry's present version, and decide again.",
    "NoSuchKey": "Insert the key, or put it without a version.",
    "Throttled": (
        "Wait until the storage takes writes again; nothing was appended. `container describe` shows the cause."
    ),
    "ClocksDisagree": "Set the clock of the host (NTP). Meanwhile it can read and write; see [Clocks](clocks.md).",
    "MadeBeforeFork": "Make writers, transactions and reader groups in the process that uses them.",
    "NothingToRecover": (
        "Recovery needs a complete flush cycle in LTS, and a lost log. With `--force` it abandons "
        "a log that can be opened."
    ),
    "LogMoved": INTERNAL,
    "Overtaken": INTERNAL,
    "FlushOvertaken": INTERNAL,
    "Unresolved": INTERNAL,
    "PartMissing": INTERNAL,
    "BrokenList": INTERNAL,
    "Gone": INTERNAL,
    "Unreadable": INTERNAL,
    # chunkstore
    "DeclaredError": "The base of `StreamError`, `EngineError` and `StorageError`. Catch it to handle all errors.",
    "StorageError": "Catch it to handle all errors of the storage. The message has the request and the answer.",
    "ObjectNotFound": (
        "Data may have been truncated or deleted while it was read: read the stream again. If the "
        "error remains, run `pravega-spark verify`."
    ),
    "StorageUnavailable": "Retry later. Reads, and writes with a producer id, may be repeated safely.",
    "Unsupported": "The backend does not support it; see [Backends](backends.md).",
    "StorageFull": "Free space or raise the quota, then repeat the call.",
    "ObjectReadOnly": "Open the object for writing, or make it writable.",
    "StorageRefused": "The message has the cause: URL, options, permissions, or self-test.",
    "InvalidOffset": (
        "The object does not have the recorded length: another program wrote it. Run `pravega-spark verify`."
    ),
    "InvalidRecord": "A record of the chunk layer contradicts itself. Run `pravega-spark verify`.",
    "MetadataConflict": "Begin the transaction again.",
    "InvalidData": INTERNAL,
    "NewerFormat": INTERNAL,
    "Failed": INTERNAL,
    "ImplausibleSweep": (
        "Find out why nothing refers to so many objects (a wrong root? a lost log?). If that is "
        "right, repeat with a higher `--plausible-share`."
    ),
    "JournalDamaged": "Restore the journal, or the root from a backup.",
    "InvalidHeader": "Nothing was adopted. Compare the header with the existing chunks.",
    "SegmentUnsupported": "The message names the kind of segment that does not support it.",
    "SegmentDamaged": "Run `pravega-spark verify`, and restore the objects that it names from a copy.",
    "SegmentError": "Catch it to handle all errors about one segment of the chunk layer.",
}
