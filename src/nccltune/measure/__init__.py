# SPDX-License-Identifier: Apache-2.0
"""Measure a platform: decide what to measure next, and exchange requests with the bench.

bench/        start nccltune-bench and exchange requests with it, also with a launcher or in pods
adaptive/     decide what a sweep of NCCL's choices measures next
engine/       the scheduler with its time budget, the executors and the records of all experiments
experiments/  each experiment: what it measures, and how it judges the results
"""
