# SPDX-License-Identifier: Apache-2.0
"""Hand-made mutants of the core, each with the tests that must kill it."""
