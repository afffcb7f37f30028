# SPDX-License-Identifier: Apache-2.0
# Finds the NVTX headers in the package nvidia-nvtx, which wheel builds install, or in a CUDA
# toolkit. Without them send/recv has no ranges in profilers.
find_program(NCCLTUNE_PYTHON NAMES python3 python)
set(folders "")
if(NCCLTUNE_PYTHON)
  execute_process(
    COMMAND ${NCCLTUNE_PYTHON} -c "import nvidia; print(';'.join(nvidia.__path__))"
    OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  foreach(package IN LISTS packages)
    file(GLOB found ${package}/*/include)
    list(APPEND folders ${found})
  endforeach()
endif()
find_path(NCCLTUNE_NVTX_INCLUDE nvtx3/nvToolsExt.h
  HINTS ${folders}
  PATHS /usr/local/cuda/include
  PATH_SUFFIXES nvidia/cu13/include)
if(NCCLTUNE_NVTX_INCLUDE)
  message(STATUS "NVTX: ${NCCLTUNE_NVTX_INCLUDE}")
elseif(NCCLTUNE_NVTX_REQUIRED)
  message(FATAL_ERROR "NVTX: not found; install the package nvidia-nvtx")
else()
  message(STATUS "NVTX: not found; send/recv is built without ranges for profilers")
endif()
