# SPDX-License-Identifier: Apache-2.0
"""The doctor: evidence of nodes against a rule base; what was found, and what to do about it."""
