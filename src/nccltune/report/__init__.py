# SPDX-License-Identifier: Apache-2.0
"""What a person reads: one structure of plain data, rendered as a page or in a terminal."""
