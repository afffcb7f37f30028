# SPDX-License-Identifier: Apache-2.0
"""Predict what a launch command starts, and find what is wrong with it.

A flavor is a launcher with its version, such as Open MPI 4.1. Slots are the number of processes
that a launcher may start on a host. The lead of a command is the words before the launcher.

source.py      the commands of a line, a script or a test's output
output.py      faults in how a test was started, from its output
flow.py        loops, branches and functions of a script, and the texts behind `<<`
directives.py  nodes, slots and GPUs that a script asks its scheduler for
words.py       the words of a shell line, with their quotes
shell.py       expand variables, arithmetic and counts of a shell
around.py      what the text around a command says about nodes and host files
compose.py     commands of the services in a Compose file
tasks.py       commands in task files of SkyPilot and dstack
typography.py  replace dashes and quotes that word processors insert
pasted.py      commands in Markdown, prose and what a terminal shows
boxes.py       containers and sudo that a program is started in
read.py        split a command into launcher, options and program; find the possible launchers
command.py     the launcher's command line as rules see it
options.py     the options of each launcher (options.csv), and those of others that they stand for
hosts.py       the hosts of a command and their slots
placed.py      predict the number of processes on each host
scheduled.py   predict the processes of Flux, jsrun, aprun and Cray PALS
stated.py      settings that a text states, with or without a command
training.py    predict the processes of torchrun, deepspeed, accelerate, vLLM and SGLang
frontends.py   commands that only run torchrun: LLaMA-Factory, Colossal-AI
peers.py       what a text gives the nodes of one job, and a script the ranks of a node
recipes.py     recipes of make, and what a container of a Dockerfile starts
nested.py      scripts and commands inside a command
manifest.py    commands in Kubernetes manifests
pods.py        pods of a manifest without the GPUs, memory or interfaces that they need
jobs.py        jobs of operators: Volcano, MPIJob, PyTorchJob, JobSet
misplaced.py   launcher options after the program
variables.py   values of the variables that NCCL reads
check.py       run every rule, for every launcher that the command may be for
rules/         the rules
finding.py     a finding and its edits
fix.py         apply the edits of findings
starts.py      describe a prediction in a sentence
"""
