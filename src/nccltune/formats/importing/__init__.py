# SPDX-License-Identifier: Apache-2.0
"""Import any mix of files into a study.

A *run* is one start of a measuring program, such as nccl-tests.

importer.py       import files: skip known runs, then write all new runs or none
inputs.py         find files, folders and standard input, and give each file to its reader
detect.py         detect the kind of a file by its content
known_runs.py     find runs that the study already holds
platforms.py      sort the files of an import by platform
run_times.py      when runs took place, and which runs were close together
suspect.py        doubts about the runs that a study imported
spool.py          keep samples on disk until they are written
writer.py         write an import completely or not at all
hardware.py       hardware files among the inputs
environments.py   the output of env beside outputs of tests
json_records.py   records of timings in JSON of any program
raw_csv.py        NVIDIA's raw CSV of measurements
raw_row.py        the cells of one of its rows
foreign_programs.py  benchmarks that do not measure NCCL
unrecognised.py   say what a file without known measurements is, and what to give instead
posted_values.py  values that a text without a table states: lists, pairs of nodes, sentences
raw_header.py     the rows of a raw CSV by their values, where names are missing
samples_jsonl.py  samples.jsonl of this or another study
"""
