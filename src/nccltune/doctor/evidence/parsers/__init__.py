# SPDX-License-Identifier: Apache-2.0
"""Readers of what tools and the kernel print: text in, records out, bad lines counted."""
