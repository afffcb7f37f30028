# SPDX-License-Identifier: Apache-2.0
"""What is wrong with topology and graph files. `check.lint_files` is the way in."""
