# SPDX-License-Identifier: Apache-2.0
"""What a launch command will really start, and what is wrong with it."""
