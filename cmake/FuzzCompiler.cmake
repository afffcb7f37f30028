# SPDX-License-Identifier: Apache-2.0
# libFuzzer is part of clang only, so find a clang before project() selects the compilers.
if(NCCLTUNE_BUILD_FUZZERS AND NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  foreach(version -14 -15 -16 -17 -18 -19 -20 "")
    find_program(NCCLTUNE_CLANGXX clang++${version})
    find_program(NCCLTUNE_CLANG clang${version})
  endforeach()
  if(NOT NCCLTUNE_CLANGXX OR NOT NCCLTUNE_CLANG)
    message(FATAL_ERROR
      "The fuzz targets need clang with its libFuzzer, and no clang was found.\n"
      "Install one (Debian 12: clang-14 libclang-rt-14-dev), or name it: CC=... CXX=... cmake ...")
  endif()
  set(CMAKE_C_COMPILER ${NCCLTUNE_CLANG})
  set(CMAKE_CXX_COMPILER ${NCCLTUNE_CLANGXX})
endif()
