# SPDX-License-Identifier: Apache-2.0
"""Measure a platform: decide what to measure next, and exchange requests with the bench.

bench/        start nccltune-bench and talk to it, also with a launcher or in pods
adaptive/     what a sweep of choices measures next, and when it stops
engine/       the scheduler, executors and records of all experiments
experiments/  what is specific to each experiment: what to measure, how to judge
"""
