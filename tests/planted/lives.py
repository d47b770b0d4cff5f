"""Breakages of identity: streams created again under a name, two lives of one memory image, forks, names that meet (P4,
W10, W15, P5)."""

from tests.planted import Breakage

_STREAMS = "tests/client/test_lives.py"
_LOG = "tests/engine/logs/test_lives.py"
_NAMES = "tests/chunkstore/test_chunk_names.py"
_FORKS = "tests/client/test_forks.py"

BREAKAGES = [
    Breakage(
        name="a-stream-is-known-by-its-name-alone",
        file="pravega_spark/streams/reading/snapshot.py",
        old="        if self.record.id != stream_id:",
        new="        if not stream_id:",
        tests=[f"{_STREAMS}::test_what_outlives_its_stream_takes_no_other_for_it"],
    ),
    Breakage(
        name="a-cut-of-a-deleted-stream-counts-as-truncated",
        file="pravega_spark/streams/reading/snapshot.py",
        old="        if former_segments(self.record, cut.positions):",
        new="        if not cut.positions:",
        tests=[f"{_STREAMS}::test_what_outlives_its_stream_takes_no_other_for_it"],
    ),
    Breakage(
        name="a-group-takes-a-new-stream-for-a-truncated-one",
        file="pravega_spark/client/groups/reader.py",
        old="            if former_segments(record, (key.id for key in positions)):",
        new="            if not positions and not record.epochs:",
        tests=[f"{_STREAMS}::test_what_outlives_its_stream_takes_no_other_for_it"],
    ),
    Breakage(
        name="an-upload-goes-to-any-stream-of-the-name",
        file="pravega_spark/streams/writing/uploads.py",
        old="        snapshot.require(self._stream_id)",
        new="        assert self._stream_id",
        tests=[f"{_STREAMS}::test_what_outlives_its_stream_takes_no_other_for_it"],
    ),
    Breakage(
        name="a-checkpoint-is-of-any-stream-of-the-name",
        file="pravega_spark/source/micro_batch.py",
        old="        snapshot.require(self._ids.setdefault(name, snapshot.record.id))",
        new="        snapshot.require(snapshot.record.id)",
        tests=[f"{_STREAMS}::test_a_query_does_not_take_a_stream_of_another_root_for_its_own"],
    ),
    Breakage(
        name="a-position-that-does-not-fit-holds-nothing-back",
        file="pravega_spark/streams/maintenance/subscribers.py",
        old="        return SubscriberPosition(snapshot.head_cut(), str(error))",
        new="        return SubscriberPosition(snapshot.tail_cut(), str(error))",
        tests=[f"{_STREAMS}::test_retention_keeps_everything_for_a_subscriber_whose_position_does_not_fit"],
    ),
    Breakage(
        name="a-new-stream-has-the-numbers-of-the-deleted-one",
        file="pravega_spark/streams/stream.py",
        old="        first = decode_number(numbers, self.key) if numbers else 0\n",
        new="        first = 0\n",
        tests=[f"{_STREAMS}::test_what_outlives_its_stream_takes_no_other_for_it"],
    ),
    Breakage(
        name="a-folder-compares-the-token-only",
        file="chunkstore/backends/local.py",
        old=" or not same_content(self._begins(target, None), data):",
        new=":",
        tests=["tests/backends/test_local.py", "-k", "another_content_under_my_token"],
    ),
    Breakage(
        name="a-bucket-compares-the-token-only",
        file="chunkstore/port.py",
        old="        return self.read(path, 0, len(token)) == token and same_content(self.read(path), data)",
        new="        return self.read(path, 0, len(token)) == token",
        tests=["tests/backends/test_memory.py", "-k", "another_content_under_my_token"],
    ),
    Breakage(
        name="content-is-compared-as-far-as-it-goes",
        file="chunkstore/port.py",
        old="    return place == len(view)",
        new="    return True",
        tests=["tests/backends/test_memory.py", "-k", "another_content_under_my_token"],
    ),
    Breakage(
        name="the-content-of-the-predecessor-is-not-compared",
        file="engine/logs/frames.py",
        old="        return (address, writer, seal) == (other.address, other.writer, other.seal)",
        new="        return (address, writer) == (other.address, other.writer)",
        tests=[f"{_LOG}::test_what_each_life_acknowledges_is_in_the_log_once"],
    ),
    Breakage(
        name="a-frame-in-flight-has-no-seal",
        file="engine/logs/log.py",
        old="        flight = Flight(position._replace(seal=frames.seal_of(data)), data,",
        new="        flight = Flight(position, data,",
        tests=[f"{_LOG}::test_what_each_life_acknowledges_is_in_the_log_once"],
    ),
    Breakage(
        name="a-clone-keeps-the-writer-id",
        file="engine/logs/log.py",
        old="            if frame.position.writer == self._writer:  # own frames",
        new="            if frame.position.writer == b'':  # own frames",
        tests=[f"{_LOG}::test_who_meets_its_own_identity_goes_on_as_another_writer"],
    ),
    Breakage(
        name="attempts-are-counted",
        file="engine/logs/log.py",
        old='lambda: int.from_bytes(os.urandom(8), "big"),',
        new="lambda: 1,",
        tests=[f"{_LOG}::test_no_two_lives_have_the_same_token"],
    ),
    Breakage(
        name="capital-letters-are-stored-as-they-are",
        file="chunkstore/chunk_names.py",
        old="    stored = escaped.lower()",
        new="    stored = escaped",
        tests=[f"{_NAMES}::test_names_that_nearly_meet_do_not", "tests/streams/test_near_names.py"],
    ),
    Breakage(
        name="dots-at-the-end-are-stored-as-they-are",
        file="chunkstore/chunk_names.py",
        old='        stored += "!"',
        new='        stored += ""',
        tests=[f"{_NAMES}::test_names_that_nearly_meet_do_not"],
    ),
    Breakage(
        name="another-form-of-a-name-is-understood",
        file="chunkstore/chunk_names.py",
        old="        return name if object_name(name) == stored else None",
        new="        return name",
        tests=[f"{_NAMES}::test_a_form_that_is_never_made_is_refused"],
    ),
    Breakage(
        name="imports-of-two-streams-share-a-folder",
        file="pravega_spark/streams/pravega_lts/unfinished_imports.py",
        old='    return f"{IMPORTS}{object_name(stream)}/"',
        new='    return f"{IMPORTS}{stream}/"',
        tests=["tests/streams/test_near_names.py::test_imports_of_streams_with_names_that_nearly_meet_do_not"],
    ),
    Breakage(
        name="the-self-test-does-not-look-at-names",
        file="chunkstore/selftest.py",
        old="    _expect(store, listed == names, f",
        new="    _expect(store, bool(listed), f",
        tests=["tests/chunkstore/test_selftest.py::test_a_storage_that_changes_names_of_chunks_is_refused"],
    ),
    Breakage(
        name="a-child-waits-for-locks-of-its-parent",
        file="engine/ownership.py",
        old="        return self._locks.get(_this) or self._locks.setdefault(_this, self._new())",
        new="        return next(iter(self._locks.values()))",
        tests=[f"{_FORKS}::test_a_child_opens_the_root_that_a_thread_of_its_parent_opens"],
    ),
    Breakage(
        name="a-child-takes-the-lock-of-its-parents-archive",
        file="pravega_spark/streams/pravega_lts/root.py",
        old="        if self._process is not this_process():",
        new="        if self._process is None:",
        tests=[f"{_FORKS}::test_a_child_reads_what_a_thread_of_its_parent_reads_of_a_pravega"],
    ),
]
