"""What to do about errors whose class has no message of its own, or whose message leaves that to this page.

tests/docs fails for an error that has neither a message nor a line here, and for a line that is about no error.
"""

from __future__ import annotations

INTERNAL = (
    "Nothing: the program handles it by itself. If one reaches you, it is a bug; please report it with its traceback."
)

REMEDIES: dict[str, str] = {
    # chunkstore
    "Damaged": "Catch it to have all errors about what is missing in the storage, or is not what was written there.",
    "PutUnknown": INTERNAL,
    "ArchiveDamaged": "The message names the object. Restore it from a copy of the folder.",
    # pravega_spark
    "StreamError": "Catch it to have all errors of streams; the message of each says what to do.",
    "LargeEventError": "Catch it to have all errors of large events; the message of each says what to do.",
    "ByteStreamError": (
        "Byte streams need a stream with one segment that holds no events; the message says what is wrong."
    ),
    "InvalidStreamCut": (
        "Use a cut of this stream, as `stream_info`, `stream_cut_at`, or table `StreamCuts` give "
        "it. A cut of a stream that was deleted and made again is of another stream."
    ),
    "InvalidEvent": (
        "The bytes of a segment are not events. Run `pravega-spark verify --deep`; a byte stream "
        "cannot be read as events."
    ),
    "InvalidIndex": (
        "The index segment is damaged. Run `pravega-spark verify`, and restore what it names from a backup."
    ),
    "Refused": "The message says why the command was refused, and which option, often `--yes`, would let it go on.",
    "WrongUsage": "Look at `pravega-spark COMMAND --help`.",
    "ImportRefused": "The message says what does not fit, and where. Nothing was changed.",
    "BrokenEvent": INTERNAL,
    # engine
    "HeaderRefused": (
        "Flush the container first (`pravega-spark container flush`). A segment whose chunks also belong to others "
        "cannot have a header."
    ),
    "EngineError": "Catch it to have all errors of the engine.",
    "DataCorruption": (
        "The message names the object. Run `pravega-spark verify --deep`, and restore the object from a "
        "copy; see [When something fails](operations.md#when-something-fails)."
    ),
    "ObjectLost": "As for `DataCorruption`.",
    "UnknownFormat": "Upgrade this installation: a newer version wrote the object. Nothing is damaged.",
    "OutcomeUnknown": (
        "Find out before you repeat it: read the stream, or write again with the same name and "
        "number (`txn_app_id`, a named upload), which never comes twice."
    ),
    "ContainerOffline": (
        "Look at its cause: `pravega-spark container list` shows the reason. Mend that, then open it again."
    ),
    "NotPrimary": "Another process writes to the container, which this one held exclusively. Open it again.",
    "InvalidOperation": (
        "The message names the operation, the field and the value: give one that the log can hold. Nothing was changed."
    ),
    "Rejected": "Catch it to have all refusals by a container's state. Nothing was changed.",
    "SegmentNotFound": "Look for the name with `pravega-spark segment list`.",
    "SegmentExists": "Open the segment, or delete it first.",
    "SegmentSealed": "Write to the stream, whose newer segments take the event, rather than to the segment.",
    "SegmentTruncated": "Read from its first readable offset, or from the head of the stream.",
    "BadOffset": "Read the segment's present length, and append there.",
    "BadAttributeUpdate": "Read the attribute's present value, and decide again.",
    "BadKeyVersion": "Read the entry's present version, and decide again.",
    "Throttled": (
        "Wait until the storage takes writes again; nothing was appended. Look at its trouble "
        "with `container describe`."
    ),
    "ClocksDisagree": "Set the clock of the host (NTP). Reading and writing go on meanwhile; see [Clocks](clocks.md).",
    "MadeBeforeFork": "Make writers, transactions and reader groups in the process that uses them.",
    "NothingToRecover": (
        "Recovery needs a complete flush cycle in LTS, and a log that is lost. With `--force` a "
        "log that is there is given up."
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
    "DeclaredError": "The base of the three below: catch it for whatever this project raises.",
    "StorageError": "Catch it to have all errors of the storage. The message has the request and the answer.",
    "ObjectNotFound": (
        "Data may have been truncated or deleted while it was read: read the stream again. If it "
        "comes again, run `pravega-spark verify`."
    ),
    "ChunkNotFound": "As for `ObjectNotFound`.",
    "StorageUnavailable": "Try again later. Reads, and writes with a name, may be repeated safely.",
    "Unsupported": "The backend cannot do it; [Backends](backends.md) says what each can do.",
    "StorageFull": "Free space or raise the quota, then repeat what failed.",
    "ChunkStorageFull": "As for `StorageFull`.",
    "ObjectReadOnly": "Open the object for writing, or make it writable.",
    "StorageRefused": "The message says which of URL, options, permissions, or self-test it is.",
    "ChunkAlreadyExists": (
        "Chunk names are unique: something copied objects into the root. Run `pravega-spark verify`."
    ),
    "InvalidOffset": (
        "The object is not as long as its writer thought: something else wrote it. Run `pravega-spark verify`."
    ),
    "InvalidRecord": "A record of the chunk layer contradicts itself. Run `pravega-spark verify`.",
    "MetadataConflict": "Begin the transaction again.",
    "InvalidData": INTERNAL,
    "NewerFormat": INTERNAL,
    "Failed": INTERNAL,
    "ImplausibleSweep": (
        "Find out why so many objects are unnamed (a wrong root? a log that is lost?). If it is "
        "right, repeat with a higher `--plausible-share`."
    ),
    "JournalDamaged": "Restore the journal, or the root from a backup.",
    "InvalidHeader": "Nothing was adopted. Compare the header with the chunks that are there.",
    "SegmentUnsupported": "The message says which kind of segment cannot do it.",
    "SegmentDamaged": "Run `pravega-spark verify`, and restore what it names from a copy.",
    "SegmentError": "Catch it to have all errors about one segment of the chunk layer.",
}
