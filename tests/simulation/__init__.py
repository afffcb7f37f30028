# SPDX-License-Identifier: Apache-2.0
"""Studies with a known truth, and a judge of what the rule search makes of them.

A study is made in memory: an effect (what the choices truly cost), a layout (which process took
which timing when) and a noise. The real pipeline reads it; the judge compares rules and intervals
with the truth.
"""
