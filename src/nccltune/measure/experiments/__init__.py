# SPDX-License-Identifier: Apache-2.0
"""The experiments. `measure/engine` has the code that they share.

choices.py   compare NCCL's choices with its default, in one communicator
copies/      compare NCCL's send/recv with copy engines: from which message size
ab/          A/B-test a proposed setting in alternating runs
"""
