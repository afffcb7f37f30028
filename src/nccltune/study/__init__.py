# SPDX-License-Identifier: Apache-2.0
"""The files of a study: the folder that holds everything measured and decided for one platform.

files.py  readers and append-only writers; the lock of a measurement
names.py  the table of file names
"""
