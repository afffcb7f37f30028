# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nccltune.model.errors import PlatformError
from nccltune.native.net_stats import NetConnection, Page, RequestCounts, decode, with_rates
from tests.unit.native.net_pages import page

NOW = 5 * 10**9


def decoded(data: bytes) -> NetConnection:
    read = decode(data, NOW)
    assert read is not None
    return read.connection


def test_a_page_is_what_the_plugin_wrote() -> None:
    connection = decoded(page(flows=3))
    assert (connection.role, connection.peer, connection.device) == (
        "sends",
        "10.0.0.2:5000",
        "eth0",
    )
    assert connection.plugin == "0.1.0"
    assert connection.seconds == 4
    assert (connection.messages, connection.outstanding, connection.bytes) == (40, 4, 5 << 20)
    assert connection.kinds == RequestCounts(eager=10, bulk=34)
    assert (connection.chunks, connection.sent_again, connection.sent_twice) == (33, 2, 3)
    assert (connection.duplicates, connection.stashed) == (5, 6)
    assert (connection.deaths, connection.returns) == (7, 8)
    express, flow, _ = connection.flows
    assert (express.express, flow.express) == (True, False)
    assert (flow.local, flow.peer, flow.up) == ("10.0.0.1:4001", "10.0.0.2:5000", True)
    assert (flow.bytes, flow.chunks, flow.share) == (3 << 20, 30, 3 / 7)
    assert (flow.taken_over, flow.deaths, flow.dials) == (11, 13, 14)
    assert (flow.undelivered_bytes, flow.busy_bytes_per_s) == (15, 16)
    assert (flow.min_rtt_us, flow.retransmits) == (17.0, 18)
    assert flow.bytes_per_s is None


def test_what_an_end_does_not_know_is_none() -> None:
    connection = decoded(page(role=1))
    assert connection.role == "receives"
    assert connection.kinds is None
    flow = connection.flows[1]
    assert flow.duplicates == 12
    assert (flow.undelivered_bytes, flow.taken_over, flow.dials) == (None, None, None)
    assert flow.busy_bytes_per_s is None
    sender = decoded(page())
    assert sender.flows[1].duplicates is None
    assert sender.flows[0].undelivered_bytes is None


def test_a_page_that_is_being_made_is_none() -> None:
    assert decode(b"", NOW) is None
    assert decode(bytes(8) + page()[8:], NOW) is None


def test_more_words_of_a_later_release_are_passed_over() -> None:
    assert decoded(page(head=512, stride=320)) == decoded(page())


def test_another_layout_names_both() -> None:
    with pytest.raises(PlatformError, match="have layout 2, and this nccltune reads 1") as caught:
        decode(page(layout=2), NOW)
    assert caught.value.hint == "use the nccltune of the plugin's release"


@pytest.mark.parametrize(
    "data",
    [
        page()[:100],
        page()[:-1],
        b"x" + page()[1:],
        page(flows=0),
        page(role=2),
        page(stride=128),
        page(head=320),
        page()[:40] + b"\xff" * 8 + page()[48:],
    ],
    ids=["cut", "flow cut", "magic", "no flow", "role", "stride", "head", "flows"],
)
def test_a_damaged_page_says_so(data: bytes) -> None:
    with pytest.raises(PlatformError, match="statistics are damaged"):
        decode(data, NOW)


@given(st.binary(max_size=80), st.integers(0, 1100))
@example(b"\xff" * 80, 0)
def test_no_bytes_are_worse_than_an_error(noise: bytes, at: int) -> None:
    whole = page(flows=3)
    data = whole[:at] + noise + whole[at + len(noise) :]
    try:
        read = decode(data, NOW)
    except PlatformError:
        return
    assert read is None or len(read.connection.flows) == 3


def test_an_address_that_is_being_written_is_seen() -> None:
    def read(sequence: int) -> Page:
        found = decode(page(sequence=sequence), NOW)
        assert found is not None
        return found

    assert read(2).whole(read(2))
    assert not read(3).whole(read(3))
    assert not read(2).whole(read(4))


def test_rates_are_of_the_time_between_two_readings() -> None:
    before, now = decoded(page()), decoded(page(bulk_bytes=4 << 20))
    rated = with_rates(now, before, 0.5)
    assert [flow.bytes_per_s for flow in rated.flows] == [0, 2 << 20]
    assert rated.bytes_per_s == 2 << 20
    # Never below nothing, whatever was read.
    assert with_rates(before, now, 0.5).bytes_per_s == 0
