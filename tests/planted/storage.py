"""Breakages of the adapters of storages, and of the parsing of names that were listed."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="failed-listing-is-empty",
        file="chunkstore/backends/generic.py",
        old="""                if not self._is_absence(error):
                    raise
            if""",
        new="""                if not self._is_absence(error):
                    return []
            if""",
        tests=[
            "tests/engine/admin/test_listings.py",
            "tests/chunkstore/backends/test_generic.py::TestCareful::test_a_listing_that_is_cut_is_an_error",
        ],
    ),
    Breakage(
        name="not-found-needs-no-witness",
        file="chunkstore/backends/generic.py",
        old="            if self._has_no_folder(fs, folder, seen):",
        new="            if True:",
        tests=["tests/engine/admin/test_listings.py"],
    ),
    Breakage(
        name="lost-connection-called-not-found",
        file="chunkstore/backends/generic.py",
        old="        return cause if hidden and isinstance(cause, Exception) else failure",
        new="        return failure",
        tests=["tests/chunkstore/backends/test_generic.py::TestCareful::test_a_listing_that_is_cut_is_an_error"],
    ),
    Breakage(
        name="login-page-is-an-empty-bucket",
        file="chunkstore/backends/s3.py",
        old='            if "IsTruncated" not in page or',
        new='            if "IsTruncated" in page and',
        tests=["tests/chunkstore/backends/test_s3.py::test_an_answer_that_is_no_listing"],
    ),
    Breakage(
        name="not-found-listing-is-absence",
        file="chunkstore/backends/bucket.py",
        old="not_the_bucket(error.code) if error.is_absent else error",
        new="error",
        tests=["tests/chunkstore/backends/test_buckets.py::test_an_answer_that_is_no_listing"],
    ),
    Breakage(
        name="any-404-is-absence",
        file="chunkstore/backends/s3.py",
        old="    if status == 404 and code in _NO_CODE and",
        new="    if not status and",
        tests=["tests/chunkstore/backends/test_s3.py::test_not_found_by_somebody_else_is_no_absence"],
    ),
    Breakage(
        name="obstore-goes-where-its-own-environment-says",
        file="chunkstore/backends/s3_obstore.py",
        old='"aws_endpoint_url_s3": endpoint, ',
        new="",
        tests=["tests/chunkstore/backends/test_s3_obstore.py::test_only_the_environment_of_both_counts"],
    ),
    Breakage(
        name="obstore-drops-what-it-does-not-know",
        file="chunkstore/backends/s3_obstore.py",
        old="        if unknown:",
        new="        if not unknown and unknown:",
        tests=["tests/chunkstore/backends/test_s3_obstore.py::test_an_option_without_counterpart_is_refused_by_name"],
    ),
    Breakage(
        name="clean-up-through-a-link",
        file="chunkstore/backends/local.py",
        old="""            if below_root:
                self._check_folder(folder)
""",
        new="",
        tests=["tests/chunkstore/backends/test_local.py::test_the_folder_of_temporary_files_is_no_link"],
    ),
    Breakage(
        name="clean-up-takes-any-file",
        file="chunkstore/backends/local.py",
        old="for entry in entries if _TEMPORARY_NAME.fullmatch(entry.name)]",
        new="for entry in entries]",
        tests=["tests/chunkstore/backends/test_local.py::test_abandoned_temporary_files_are_removed_in_time"],
    ),
    Breakage(
        name="folders-on-the-way-may-be-links",
        file="chunkstore/backends/local.py",
        old="        if folder not in self._real:\n            try:",
        new="        if False:\n            try:",
        tests=["tests/chunkstore/backends/test_local.py::test_links_below_a_root_are_not_followed"],
    ),
    Breakage(
        name="listings-follow-links",
        file="chunkstore/backends/local.py",
        old="                if entry.is_dir(follow_symlinks=False):",
        new="                if entry.is_dir():",
        tests=["tests/chunkstore/backends/test_local.py::test_links_below_a_root_are_not_followed"],
    ),
    Breakage(
        name="any-listed-name-is-a-path",
        file="chunkstore/port.py",
        old="""            self._check_path(path)
        except ValueError""",
        new="""            pass
        except ValueError""",
        tests=["tests/chunkstore/backends/test_local.py::test_what_cannot_be_an_object_is_passed_over"],
    ),
    Breakage(
        name="any-listed-name-is-a-number",
        file="chunkstore/numbered.py",
        old="            if number_of(info.path, folder) is not None:",
        new="            if True:",
        tests=["tests/engine/admin/test_listings.py::test_foreign_files_are_passed_over_told_and_kept"],
    ),
    Breakage(
        name="names-are-parsed-loosely",
        file="chunkstore/numbered.py",
        old='_NAME = re.compile("[0-9]{20}")',
        new='_NAME = re.compile(r"\\d+.*")',
        tests=["tests/engine/admin/test_listings.py"],
    ),
    Breakage(
        name="a-page-of-foreign-names-ends-a-listing",
        file="chunkstore/numbered.py",
        old="        if wanted is None or len(page) < wanted:",
        new="        if True:",
        tests=["tests/chunkstore/test_numbered.py"],
    ),
    Breakage(
        name="verify-tells-nothing-foreign",
        file="engine/admin/verify.py",
        old="        self._report(None, foreign_problems(stores))\n",
        new="",
        tests=["tests/engine/admin/test_listings.py::test_foreign_files_are_passed_over_told_and_kept"],
    ),
    Breakage(
        name="sftp-follows-links",
        file="chunkstore/backends/sftp.py",
        old="        if stat.S_ISLNK(facts.st_mode):\n            raise self._link_at(folder)",
        new="        if False:\n            raise self._link_at(folder)",
        tests=["tests/chunkstore/backends/test_sftp.py::TestFiles::test_links_are_never_followed"],
    ),
    Breakage(
        name="a-read-takes-the-end-from-the-size-before",
        file="chunkstore/backends/generic.py",
        old="end=None if stop == size else stop))",
        new="end=stop))",
        tests=[
            "tests/chunkstore/backends/test_generic.py::test_an_object_that_is_overwritten_while_it_is_read_is_read_whole"
        ],
    ),
    Breakage(
        name="what-an-earlier-try-made-is-not-synced",
        file="chunkstore/backends/generic.py",
        old='            self.sync(path[: path.rfind("/") + 1])',
        new="            pass",
        tests=[
            "tests/chunkstore/backends/test_generic.py::test_what_an_earlier_try_made_is_durable_before_it_is_said_to_be_there"
        ],
    ),
    Breakage(
        name="an-object-that-is-deleted-at-once-was-not-made",
        file="chunkstore/backends/local.py",
        old="            with contextlib.suppress(OSError):  # it is made, even",
        new="            with contextlib.nullcontext():  # it is made, even",
        tests=["tests/chunkstore/backends/test_local.py::TestFiles"],
    ),
    Breakage(
        name="a-query-goes-on-from-the-checkpoint-of-another-stream",
        file="pravega_spark/source/micro_batch.py",
        old="            self._check_same_stream(cut)\n",
        new="",
        tests=["tests/source/test_micro_batch.py::test_a_checkpoint_of_a_query_on_another_stream_is_named_as_that"],
    ),
]
