# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import pytest

from nccltune.model.errors import InputError, PlatformError
from nccltune.native.net_processes import NetProcess, NetWatch
from tests.unit.native.net_pages import NAME, page, shown

ME = os.getpid()


def mine() -> list[NetProcess]:
    return [process for process in NetWatch().read() if process.pid == ME]


def test_every_page_of_a_process_is_found_once() -> None:
    with shown(page()) as fd, shown(page(role=1)):
        again = os.dup(fd)
        try:
            (process,) = mine()
        finally:
            os.close(again)
        assert {connection.role for connection in process.connections} == {"sends", "receives"}
        assert len(process.connections) == 2
        assert "python" in process.command
        assert process.problems == []
        assert len(NetWatch([ME]).read()[0].connections) == 2
    assert mine() == []


def test_what_came_with_a_fork_is_its_makers() -> None:
    with shown(page(pid=ME + 1)):
        assert mine() == []


def test_memory_of_a_longer_name_is_somebody_elses() -> None:
    with shown(page(), NAME + "2"):
        assert mine() == []


def test_a_page_that_cannot_be_read_does_not_hide_the_others() -> None:
    with shown(page()), shown(page(layout=9)), shown(b"rubbish"), shown(page(sequence=3)):
        (process,) = mine()
    # One whose writer was stopped in the middle is shown all the same.
    assert len(process.connections) == 2
    assert process.problems == [
        "its statistics have layout 9, and this nccltune reads 1; "
        "use the nccltune of the plugin's release",
        "its statistics are damaged: 7 bytes; "
        f"another program may have made memory with the name {NAME}",
    ]


def test_rates_need_two_readings() -> None:
    watch = NetWatch([ME])
    with shown(page(bulk_bytes=1000)) as fd:
        assert watch.read()[0].connections[0].bytes_per_s is None
        os.pwrite(fd, page(bulk_bytes=1500), 0)
        rate = watch.read()[0].connections[0].bytes_per_s
        assert rate is not None
        assert rate > 0


def test_a_process_without_the_plugin_is_an_error_with_a_way_out() -> None:
    # Not this one: another test may have loaded the plugin in it.
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            message = f"process {other.pid} has not loaded the network plugin"
            with pytest.raises(InputError, match=message) as caught:
                NetWatch([other.pid]).read()
        finally:
            other.kill()
    assert caught.value.hint is not None
    assert "NCCL_DEBUG=INFO" in caught.value.hint


def test_a_process_that_ends_is_left_out_but_one_that_never_was_is_an_error() -> None:
    with shown(page()) as fd:
        # It has the page open as its own: the number in it is right.
        code = "import os, sys; os.write(1, b'.'); sys.stdin.read()"
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[fd],
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.read(1)
        os.pwrite(fd, page(pid=child.pid), 0)
        watch = NetWatch([child.pid])
        assert len(watch.read()[0].connections) == 1
        child.stdin.close()
        # Until it is waited for, it is there without being there.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert watch.read() == []
        child.wait()
        child.stdout.close()
        assert watch.read() == []
    with pytest.raises(InputError, match=f"there is no process {child.pid}"):
        NetWatch([child.pid]).read()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look at every process")
def test_a_process_of_another_user_is_an_error() -> None:
    with pytest.raises(PlatformError, match="may not be looked at"):
        NetWatch([1]).read()
