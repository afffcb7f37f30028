# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from nccltune.measure.engine.settings import (
    DEFAULT,
    Effective,
    Settings,
    log_settings,
    read_effective,
)
from nccltune.measure.experiments.p2p.settings import (
    BUFFER,
    CHUNK,
    MAX_P2P_CHANNELS,
    MIN_CHANNELS,
    PER_NET_PEER,
    candidates,
    memory_bytes,
    merged,
    problem,
)

K, M = 1 << 10, 1 << 20
H200 = Effective(24, 32, 32, 512 * K)


def of(**values: int) -> Settings:
    return Settings.of({f"NCCL_{name}": value for name, value in values.items()})


def test_settings_are_the_same_in_any_order() -> None:
    one = of(MIN_P2P_NCHANNELS=64, BUFFSIZE=8 * M)
    other = of(BUFFSIZE=8 * M, MIN_P2P_NCHANNELS=64)
    assert one == other
    assert one.label == "NCCL_BUFFSIZE=8388608 NCCL_MIN_P2P_NCHANNELS=64"
    assert one.without(BUFFER).environment == {MIN_CHANNELS: "64"}
    assert DEFAULT.label == "default"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (of(MIN_P2P_NCHANNELS=64), None),
        (of(P2P_NVL_CHUNKSIZE=512 * K), None),
        (of(P2P_NVL_CHUNKSIZE=M, BUFFSIZE=8 * M), None),
        (of(BUFFSIZE=M), None),
        (of(MIN_P2P_NCHANNELS=48), "power of two"),
        (of(MIN_P2P_NCHANNELS=128), "at most 64"),
        (of(MIN_P2P_NCHANNELS=64, MAX_P2P_NCHANNELS=8), "NCCL would use the former"),
        (of(P2P_NVL_CHUNKSIZE=M), "more than an eighth"),
        (of(P2P_NVL_CHUNKSIZE=512 * K, BUFFSIZE=2 * M), "more than an eighth"),
        (of(ALGO=1), "not a setting of send/recv"),
    ],
)
def test_settings_without_effect_are_refused(settings: Settings, words: str | None) -> None:
    found = problem(settings)
    assert found is None if words is None else words in (found or "")


def test_what_contradicts_does_not_merge() -> None:
    channels, chunk = of(MIN_P2P_NCHANNELS=64), of(P2P_NVL_CHUNKSIZE=M, BUFFSIZE=8 * M)
    assert merged(channels, chunk) == of(MIN_P2P_NCHANNELS=64, P2P_NVL_CHUNKSIZE=M, BUFFSIZE=8 * M)
    assert merged(chunk, of(BUFFSIZE=M)) is None
    assert merged(channels, of(MAX_P2P_NCHANNELS=8)) is None


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("now", [None, H200, Effective(2, 2, 2, 128 * K)])
def test_only_what_can_have_an_effect_is_tried(nodes: int, now: Effective | None) -> None:
    found = candidates(nodes, now)
    assert all(problem(candidate.settings) is None for candidate in found)
    assert all(candidate.of in candidate.settings.numbers for candidate in found)
    assert len({candidate.settings for candidate in found}) == len(found)
    of_setting = {candidate.of for candidate in found}
    assert (PER_NET_PEER in of_setting) == (nodes > 1)
    assert (CHUNK in of_setting) == (nodes == 1 and (now is None or now.chunk_bytes == 512 * K))
    if now is H200:
        assert [candidate.settings for candidate in found if candidate.of == MIN_CHANNELS] == [
            of(MIN_P2P_NCHANNELS=64)
        ]
        assert {
            candidate.settings.numbers[MAX_P2P_CHANNELS]
            for candidate in found
            if candidate.of == MAX_P2P_CHANNELS
        } == {2, 4, 8, 16}


def test_more_channels_to_a_peer_than_there_are_bring_them_along() -> None:
    found = {candidate.settings for candidate in candidates(4, Effective(2, 2, 2, 128 * K))}
    assert of(NCHANNELS_PER_NET_PEER=4, MIN_P2P_NCHANNELS=4) in found
    assert of(NCHANNELS_PER_NET_PEER=1) in found
    assert of(NCHANNELS_PER_NET_PEER=2) not in found


def test_memory_counts_every_protocols_buffer() -> None:
    one = (4 << 20) + (512 << 10) + 4_915_200
    assert memory_bytes(DEFAULT, H200, ranks=4) == 3 * 32 * one
    larger = of(BUFFSIZE=8 * M)
    assert memory_bytes(larger, H200, ranks=4) == 3 * 32 * (one + 4 * M)
    assert memory_bytes(DEFAULT, None, ranks=4) is None


LOG = """vm:11:12 [1] NCCL INFO P2P Chunksize set to 524288
vm:11:12 [1] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, \
32 p2p channels per peer
"""


def test_what_nccl_made_of_it_is_read_from_its_log(tmp_path: Path) -> None:
    assert read_effective(tmp_path) is None
    (tmp_path / "nccl.vm.10").write_text("vm:10:10 [0] NCCL INFO NCCL version 2.28.9\n")
    assert read_effective(tmp_path) is None
    (tmp_path / "nccl.vm.11").write_text(LOG)
    assert read_effective(tmp_path) == H200
    older = LOG.replace("24 collnet channels, ", "")
    (tmp_path / "nccl.vm.11").write_text(older)
    assert read_effective(tmp_path) == H200
    assert log_settings(tmp_path)["NCCL_DEBUG_SUBSYS"] == "INIT"
