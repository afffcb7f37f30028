# SPDX-License-Identifier: Apache-2.0
"""Predict what NCCL chooses on a platform, why, and how long its own cost model says it takes.

This is NCCL's model for any version from 2.19 on, not a measurement. The graphs of rings, trees and
NVLS are those of `topology.nccl_model`. `scale_out` fits the model to measured times.

constants.py     constants (constants.toml) and rules of the model by version
communicator.py  what the model sees of a platform: ranks, CPUs, graphs, channels
model.py         latency and bandwidth of each algorithm and protocol, and what limits them
choice.py        times at a size, the choice, its channels and threads
prediction.py    the prediction of a collective at many sizes, and the difference of two
scaling.py       expected times at more nodes than were measured, with an interval
"""

from nccltune.predict.constants import NEWEST
from nccltune.predict.model import LimitKind
from nccltune.predict.prediction import Prediction, SizeChange, SizePrediction, changes, predict
from nccltune.predict.scaling import (
    ErrorQuantiles,
    ExpectedSize,
    MeasuredCurve,
    ScaleOut,
    TermErrors,
    expected_of,
    scale_out,
)

__all__ = [
    "NEWEST",
    "ErrorQuantiles",
    "ExpectedSize",
    "LimitKind",
    "MeasuredCurve",
    "Prediction",
    "ScaleOut",
    "SizeChange",
    "SizePrediction",
    "TermErrors",
    "changes",
    "expected_of",
    "predict",
    "scale_out",
]
