"""Breakages of signed roots (W20)."""

from tests.planted import Breakage

_ROOTS = "tests/engine/test_signed_roots.py"
_SIGNATURES = "tests/engine/test_signatures.py"

BREAKAGES = [
    Breakage(
        name="signature-without-path",
        file="engine/signatures.py",
        old='        made.update(path.encode() + b"\\0")\n',
        new="",
        tests=[f"{_ROOTS}::test_an_object_of_another_address"],
    ),
    Breakage(
        name="signature-is-not-compared",
        file="engine/signed_store.py",
        old="        if not self._key.fits(path, data, signature):",
        new="        if not signature:",
        tests=[f"{_ROOTS}::test_a_forged_object_with_right_checksums"],
    ),
    Breakage(
        name="parts-of-signed-objects-are-not-checked",
        file="engine/signed_store.py",
        old="        return bytes(self._checked(path, self.inner.read(path))[start:end])",
        new="        end = len(self.inner.read(path)) - SIGNATURE if end is None else end\n"
        "        return self.inner.read(path, start, end)",
        tests=[f"{_SIGNATURES}::test_an_object_that_was_changed_is_an_error_however_it_is_read"],
    ),
    Breakage(
        name="payload-of-signed-frames-is-not-checked",
        file="engine/signed_store.py",
        old="        data = self._checked(path, self.inner.read(path))[start : start + room.nbytes]\n",
        new="        data = self.inner.read(path)[:-SIGNATURE][start : start + room.nbytes]\n",
        tests=[f"{_SIGNATURES}::test_an_object_that_was_changed_is_an_error_however_it_is_read"],
    ),
    Breakage(
        name="forged-frame-is-the-end-of-the-log",
        file="engine/logs/log.py",
        old="        if isinstance(prefix, FrameForged):\n            return prefix\n",
        new="        if isinstance(prefix, FrameForged):\n            return None\n",
        tests=[f"{_ROOTS}::test_an_object_of_another_address"],
    ),
    Breakage(
        name="forged-frame-costs-those-before-it",
        file="engine/logs/frames.py",
        old="        if len(ranges) > 1:",
        new="        if not ranges:",
        tests=[f"{_ROOTS}::test_frames_before_a_forged_one_are_read"],
    ),
    Breakage(
        name="recovery-points-are-not-signed",
        file="chunkstore/paths.py",
        old="checkpoint-parts|recovery-points|witness|inbox)/",
        new="checkpoint-parts|witness|inbox)/",
        tests=[f"{_ROOTS}::test_one_changed_bit"],
    ),
    Breakage(
        name="removed-signature-is-accepted",
        file="engine/signatures.py",
        old="        if key is not None:\n            raise StorageRefused(",
        new='        if key is not None and "signed" in fields:\n            raise StorageRefused(',
        tests=[f"{_ROOTS}::test_a_description_that_somebody_made_unsigned_is_refused"],
    ),
    Breakage(
        name="description-is-not-compared-with-its-signature",
        file="engine/signatures.py",
        old="    if type(signature) is not str or not hmac.compare_digest(",
        new="    if type(signature) is not str and not hmac.compare_digest(",
        tests=[f"{_ROOTS}::test_a_changed_description_with_the_right_checksum_is_refused"],
    ),
    Breakage(
        name="environment-counts-before-the-setting",
        file="engine/signatures.py",
        old="if text.strip() and not file else key_in(file)",
        new="if text.strip() else key_in(file)",
        tests=[f"{_ROOTS}::test_a_signed_root_needs_its_key"],
    ),
    Breakage(
        name="backup-is-not-signed",
        file="engine/admin/backups.py",
        old="    store = signed_stores(Stores(store, store), root.key).chunks\n",
        new="",
        tests=[f"{_ROOTS}::test_a_backup_is_signed_and_restored_with_any_key_or_none"],
    ),
    Breakage(
        name="restored-root-has-the-old-key",
        file="engine/admin/backups.py",
        old="    stores = signed_stores(Stores(store, store), target_key)\n",
        new="    stores = signed_stores(Stores(store, store), source_key)\n",
        tests=[f"{_ROOTS}::test_a_backup_is_signed_and_restored_with_any_key_or_none"],
    ),
    Breakage(
        name="forged-submission-hides-those-of-others",
        file="engine/logs/inbox.py",
        old="            self._forged.add(wanted[0].path)\n",
        new="            raise\n",
        tests=[f"{_ROOTS}::test_a_forged_submission_is_not_carried_and_told"],
    ),
    Breakage(
        name="verify-reads-no-signatures",
        file="engine/admin/verify.py",
        old="            self._check_signatures(number)\n",
        new="",
        tests=[f"{_ROOTS}::test_verification_reports_a_forged_submission_as_a_warning"],
    ),
    Breakage(
        name="key-in-place-of-its-file-is-shown",
        file="engine/signatures.py",
        old="    if is_key(file):\n",
        new="    if not file:\n",
        tests=[f"{_SIGNATURES}::test_a_key_in_the_place_of_its_file_is_refused_and_not_shown"],
    ),
]
