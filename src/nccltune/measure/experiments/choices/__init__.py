# SPDX-License-Identifier: Apache-2.0
"""Compare NCCL's choices with its default, in one communicator.

experiment.py  the scope of a sweep, its plan, and its summary
"""
