#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes wait_kernels.inc from wait_kernels.cu. The argument is nvcc of CUDA 13 or later, which
# cannot compile for the oldest GPUs. The code uses nothing newer, so the versions are replaced.
set -eu
here=$(dirname "$0")
{
  echo '// SPDX-License-Identifier: Apache-2.0'
  echo '//'
  echo '// Written by wait_kernels.sh from wait_kernels.cu.'
  echo 'R"ptx('
  "$1" -std=c++17 -arch=compute_75 -ptx -o - "$here/wait_kernels.cu" |
    sed -e '/^\/\//d' -e '/^[[:space:]]*\/\//d' -e '/^[[:space:]]*$/d' \
        -e 's/^\.version.*/.version 6.4/' -e 's/^\.target.*/.target sm_70/'
  echo ')ptx"'
} > "$here/wait_kernels.inc"
