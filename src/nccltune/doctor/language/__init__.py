# SPDX-License-Identifier: Apache-2.0
"""Language of rules: a subset of Python's expressions over facts, with three-valued logic.

expression.py      compile an expression; only this module decides what is allowed
comprehensions.py  run comprehensions, `any` and `all`
functions.py       the functions that an expression may call
template.py        compile texts with expressions in braces
evaluation.py      define UNKNOWN, the environment of an evaluation and its limit of steps
"""
