# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of nccltune. Imports nothing of ours outside this folder."""
