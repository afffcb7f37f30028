# SPDX-License-Identifier: Apache-2.0
"""The experiments. `measure/engine` has the code that they share.

choices.py   compare NCCL's choices with its default, in one communicator
p2p/         find the best settings of NCCL's own send/recv
copies/      compare NCCL's send/recv with copy engines: from which message size, in which chunks
ab/          A/B-test a proposed setting in alternating runs
"""
