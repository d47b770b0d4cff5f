"""Messages between the processes of one host (W18.11), and what a caller hears where its thread hands over."""

from __future__ import annotations

from tests.planted import Breakage

_HOST = "tests/engine/logs/test_commit_queue_mailbox.py::test_"
_RULES = "tests/engine/logs/test_commit_queue_rules.py::test_"
_BOX = "tests/engine/logs/test_mailbox.py::test_"

BREAKAGES = [
    Breakage(
        name="an-owner-does-not-read-on-when-it-is-told-to",
        file="engine/logs/carrier.py",
        old="            elif not replica.log.flights:\n                replica.read(",
        new="            elif replica.exclusive:\n                replica.read(",
        tests=[f"{_HOST}what_comes_by_the_mailbox_is_one_frame_of_the_maker_and_one_read_of_the_owner"],
    ),
    Breakage(
        name="what-a-message-calls-durable-is-synced-again",
        file="engine/logs/log.py",
        old="                found, ended = self._look(min(address - self.next + 1, MAX_WINDOW))\n",
        new="                found, ended = self._look(min(address - self.next + 1, MAX_WINDOW))\n"
        "                self.store.sync(self._folder)\n",
        tests=[f"{_HOST}what_comes_by_the_mailbox_is_one_frame_of_the_maker_and_one_read_of_the_owner"],
    ),
    Breakage(
        name="a-message-is-believed-beyond-the-logs-end",
        file="engine/logs/log.py",
        old="            if ended:\n                break\n        self._recognise()\n",
        new="            if ended:\n                self.next = address + 1\n        self._recognise()\n",
        tests=[f"{_HOST}a_message_that_says_too_much_is_not_believed"],
    ),
    Breakage(
        name="a-dead-maker-is-waited-for",
        file="engine/logs/submitter.py",
        old="        if delivery is Delivery.DEAD:\n",
        new="        if delivery is None:\n",
        tests=[f"{_HOST}an_owner_whose_maker_died_makes_a_frame_at_once"],
    ),
    Breakage(
        name="a-maker-that-lost-its-epoch-keeps-silent",
        file="engine/logs/inbox.py",
        old="            senders |= {*self._senders.values(), *(",
        new="            senders |= {*(",
        tests=[f"{_HOST}a_maker_that_lost_its_epoch_says_so_to_its_owners"],
    ),
    Breakage(
        name="a-former-maker-keeps-what-comes",
        file="engine/logs/inbox.py",
        old="*(message.sender for message in self._received)}",
        new="*()}",
        tests=[f"{_HOST}what_comes_to_a_former_maker_is_answered"],
    ),
    Breakage(
        name="a-message-of-another-epoch-is-carried",
        file="engine/logs/inbox.py",
        old="            if address.epoch != epoch:\n",
        new="            if address.epoch < 0:\n",
        tests=[f"{_HOST}a_message_to_another_epoch_is_not_carried"],
    ),
    Breakage(
        name="a-message-is-carried-as-often-as-it-comes",
        file="engine/logs/inbox.py",
        old="            elif self._is_new(address):\n                self._senders",
        new="            else:\n                self._senders",
        tests=[f"{_HOST}a_message_that_comes_twice_is_carried_once"],
    ),
    Breakage(
        name="frames-of-a-host-are-small",
        file="engine/logs/inbox.py",
        old="        if self._expected < GATHERED_SENDERS or ",
        new="        if self._expected > -1 or ",
        tests=[f"{_HOST}the_next_frame_waits_for_those_that_the_last_one_answered"],
    ),
    Breakage(
        name="an-owner-that-does-not-come-back-is-waited-for",
        file="engine/logs/inbox.py",
        old="GATHER_TRIPS = 4\n",
        new="GATHER_TRIPS = 4_000\n",
        tests=[f"{_HOST}nobody_waits_long_for_an_owner_that_does_not_come_back"],
    ),
    Breakage(
        name="one-frame-at-a-time-for-ever",
        file="engine/logs/frame_sender.py",
        old="        return (self._inline or self._carrier.inbox.gathers) and self._replica.log.in_company(MAKER_TRIPS)\n",
        new="        company = self._replica.log.in_company(MAKER_TRIPS)\n"
        "        return self._carrier.inbox.gathers or (self._inline and company)\n",
        tests=[f"{_HOST}one_frame_is_in_flight_while_neighbours_commit_and_several_when_they_are_gone"],
    ),
    Breakage(
        name="others-may-enter-the-folder-of-mailboxes",
        file="engine/logs/mailbox.py",
        old=" or found.st_mode & 0o077:",
        new=":",
        tests=[f"{_BOX}a_folder_that_others_can_enter_is_not_used"],
    ),
    Breakage(
        name="a-link-in-place-of-the-folder-of-mailboxes",
        file="engine/logs/mailbox.py",
        old="    found = os.lstat(folder)\n",
        new="    found = os.stat(folder)\n",
        tests=[f"{_BOX}a_folder_that_others_can_enter_is_not_used"],
    ),
    Breakage(
        name="a-fork-closes-its-parents-mailbox",
        file="engine/logs/mailbox.py",
        old="        if os.getpid() == self._process:\n",
        new="        if self._process > 0:\n",
        tests=[f"{_BOX}a_fork_that_ends_leaves_the_mailbox_of_its_parent"],
    ),
    Breakage(
        name="sockets-of-dead-processes-stay",
        file="engine/logs/mailbox.py",
        old="        _sweep(folder)\n",
        new="",
        tests=[f"{_BOX}the_socket_of_a_dead_process_is_removed_and_those_of_others_stay"],
    ),
    Breakage(
        name="a-full-mailbox-is-waited-for",
        file="engine/logs/mailbox.py",
        old="SEND_MICROSECONDS = 50_000\n",
        new="SEND_MICROSECONDS = 0\n",
        tests=["--timeout=20", f"{_BOX}a_receiver_that_reads_nothing_does_not_hold_its_sender_up_for_ever"],
    ),
    Breakage(
        name="what-has-an-outcome-is-sent",
        file="engine/logs/frame_sender.py",
        old="            if each.outcome is None and (",
        new="            if (",
        tests=[f"{_RULES}what_is_unknown_as_the_log_moved_does_not_leave_in_an_own_frame"],
    ),
    Breakage(
        name="a-caller-hears-that-its-thread-could-not-hand-over",
        file="engine/logs/processor.py",
        old="                    raise\n            return True\n        finally:\n            if taken:",
        new="                    raise\n            finally:\n                if not self.idle:\n"
        "                    self._hand_over()\n            return True\n        finally:\n            if taken:",
        tests=[
            "tests/engine/logs/test_outcomes.py"
            "::test_a_fault_where_a_caller_hands_over_what_it_submitted_to_another_process"
        ],
    ),
]
