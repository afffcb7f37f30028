# SPDX-License-Identifier: Apache-2.0
"""The threshold from the effects at each size, without processes, and the preload's settings."""

import itertools
import math
from pathlib import Path

import pytest

from nccltune.analyze.stats import Interval
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.settings import DEFAULT as NO_SETTING
from nccltune.measure.engine.settings import Settings
from nccltune.measure.experiments.copies.preload import count_messages, on_gpus, preloaded
from nccltune.measure.experiments.copies.settings import (
    COPY_ENGINE,
    FROM,
    ON,
    POLICY,
    check_environment,
    label,
    policies,
)
from nccltune.measure.experiments.copies.threshold import (
    Effect,
    MessageSizeGain,
    effect_of,
    find_threshold,
)
from nccltune.measure.experiments.p2p.settings import merged
from nccltune.model.errors import InputError

K, M = 1 << 10, 1 << 20
DEFAULT = 2 * M
FLOOR = math.log1p(0.02)
LETTERS = {
    "f": Effect.FASTER,
    "=": Effect.SAME,
    "s": Effect.SLOWER,
    "?": Effect.UNCLEAR,
}
NOT_SLOWER = (Effect.FASTER, Effect.SAME)


def sizes(letters: str, first: int = 512 * K) -> list[MessageSizeGain]:
    """Return the sizes with the effects of `letters`, one letter per size, by powers of two."""
    return [MessageSizeGain(first << at, LETTERS[letter]) for at, letter in enumerate(letters)]


@pytest.mark.parametrize(
    ("letters", "from_bytes"),
    [
        # The sizes are 512K 1M 2M 4M 8M. The default is 2M.
        ("sssff", 4 * M),
        ("sssss", None),
        ("fffff", 512 * K),
        ("=====", 512 * K),
        ("sfff=", 1 * M),
        ("s=fff", 1 * M),
        ("ssfff", 2 * M),
        ("s?fff", 2 * M),
        ("s?f?f", 2 * M),
        ("????f", 2 * M),
        ("?????", 2 * M),
        ("ss?ff", 2 * M),
        ("sss?f", 4 * M),
        ("fsffs", None),
        ("ffsff", 4 * M),
        ("fffsf", 8 * M),
        ("sf?ss", None),
    ],
)
def test_thresholds(letters: str, from_bytes: int | None) -> None:
    assert find_threshold(sizes(letters), DEFAULT).from_bytes == from_bytes


def test_a_threshold_is_never_more_than_what_is_proven() -> None:
    for letters in itertools.product("f=s?", repeat=5):
        known = sizes("".join(letters))
        found = find_threshold(known, DEFAULT)
        slower = [size.bytes for size in known if size.effect is Effect.SLOWER]
        if found.from_bytes is None:
            assert slower
            assert slower[-1] == known[-1].bytes
            continue
        above = [size for size in known if size.bytes >= found.from_bytes]
        assert not any(size.effect is Effect.SLOWER for size in above), letters
        if found.from_bytes < DEFAULT:
            assert all(size.effect in NOT_SLOWER for size in above), letters
            below = [size for size in known if size.bytes < found.from_bytes]
            assert not below or below[-1].effect not in NOT_SLOWER, letters
        elif found.from_bytes > DEFAULT:
            assert max(slower) * 2 == found.from_bytes, letters
        assert found.why


def test_a_default_between_two_sizes_stays_where_these_decide_nothing() -> None:
    found = find_threshold(sizes("sff", first=3 * M // 2), DEFAULT)
    assert found.from_bytes == DEFAULT
    assert "the default stays" in found.why
    assert find_threshold(sizes("fff", first=3 * M // 2), DEFAULT).from_bytes == 3 * M // 2


def test_the_reason_names_what_a_threshold_cannot_express() -> None:
    why = find_threshold(sizes("sfffs"), DEFAULT).why
    assert "slower at 8 MiB, the largest size, though faster between 1 MiB and 4 MiB" in why
    assert "and faster at none" in find_threshold(sizes("sssss"), DEFAULT).why


def interval(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half, 6, known=True)


@pytest.mark.parametrize(
    ("value", "half", "sure_half", "effect"),
    [
        (0.10, 0.02, 0.04, Effect.FASTER),
        (0.01, 0.005, 0.009, Effect.SAME),
        (0.00, 0.01, 0.02, Effect.SAME),
        (-0.01, 0.005, 0.009, Effect.SAME),
        (-0.10, 0.02, 0.04, Effect.SLOWER),
        (-0.10, 0.05, 0.11, Effect.UNCLEAR),
        (-0.018, 0.005, 0.009, Effect.UNCLEAR),
        (0.05, 0.10, 0.20, Effect.UNCLEAR),
    ],
)
def test_effects(value: float, half: float, sure_half: float, effect: Effect) -> None:
    assert effect_of(interval(value, half), interval(value, sure_half), FLOOR) is effect


LIBRARY = Path("/opt/lib/libnccltune-sendrecv.so")


def test_messages_are_summed_over_processes() -> None:
    text = (
        "nccltune sendrecv: process 1: copy engine, pushed: 14 messages, 20841021 bytes\n"
        "nccltune sendrecv: process 2: copy engine, pushed: 6 messages, 20841021 bytes\n"
        "nccltune sendrecv: process 2: NCCL: small: 7 messages, 1 bytes\n"
        "something else\n"
    )
    assert count_messages(text) == {"copy engine, pushed": 20, "NCCL: small": 7}
    assert count_messages("") == {}


def test_what_is_preloaded_already_stays_behind() -> None:
    assert preloaded(LIBRARY, None, {}) == {
        "LD_PRELOAD": str(LIBRARY),
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }
    both = preloaded(LIBRARY, "/x/libnccl.so.2", {"LD_PRELOAD": "/lib/libjemalloc.so"})
    assert both == {
        "LD_PRELOAD": f"{LIBRARY}:/lib/libjemalloc.so",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "NCCLTUNE_SENDRECV_NCCL": "/x/libnccl.so.2",
    }
    assert preloaded(LIBRARY, None, {"CUDA_DEVICE_MAX_CONNECTIONS": "16"}) == {
        "LD_PRELOAD": str(LIBRARY),
        "CUDA_DEVICE_MAX_CONNECTIONS": "16",
    }


def test_a_missing_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such library") as error:
        on_gpus(Launch(), tmp_path / "none.so")
    assert error.value.hint is not None
    assert "‹library›" in error.value.hint


def test_variables_of_compared_settings_are_errors() -> None:
    check_environment({"NCCLTUNE_SENDRECV_EAGER": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    check_environment({"CUDA_DEVICE_MAX_CONNECTIONS": "16"})
    with pytest.raises(InputError, match="MAX_CONNECTIONS=2 is set: NCCL then carries everything"):
        check_environment({"CUDA_DEVICE_MAX_CONNECTIONS": "2"})
    with pytest.raises(InputError, match="CHUNK=1M is set"):
        check_environment({"NCCLTUNE_SENDRECV_CHUNK": "1M"})


def test_labels() -> None:
    assert label(NO_SETTING) == "native"
    assert label(COPY_ENGINE) == "copy engine"
    assert label(Settings.of({POLICY: "vccl", FROM: 4096})) == "vccl"
    assert [label(item) for item in policies()][3:5] == [
        "vccl chunk=128MiB buffer=128MiB",
        "vccl steps=2",
    ]


def test_settings_with_words_are_recorded_whole() -> None:
    settings = Settings.of({POLICY: "vccl", ON: 1})
    assert settings.recorded == {ON: 1, POLICY: "vccl"}
    assert settings.environment == {ON: "1", POLICY: "vccl"}
    assert settings.label == f"{ON}=1 {POLICY}=vccl"
    assert Settings.of(settings.recorded) == settings
    assert settings.without(ON) == Settings.of({POLICY: "vccl"})
    assert merged(settings, Settings.of({POLICY: "other"})) is None
