# SPDX-License-Identifier: Apache-2.0
# All options of the native build.
if(DEFINED SKBUILD)
  # A wheel contains only what users load and run, so no tests.
  set(NCCLTUNE_DEVELOP OFF)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
  endif()
  # A unity build halves the compile time.
  set(CMAKE_UNITY_BUILD ON)
else()
  set(NCCLTUNE_DEVELOP ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo)
  endif()
endif()

option(NCCLTUNE_BUILD_TESTS "Build the native tests (GoogleTest)" ${NCCLTUNE_DEVELOP})
option(NCCLTUNE_BUILD_BENCHMARKS "Build the native benchmarks (Google Benchmark)" OFF)
option(NCCLTUNE_BUILD_FUZZERS "Build the libFuzzer targets (clang only)" OFF)
option(NCCLTUNE_WARNINGS_AS_ERRORS "Fail the build on a compiler warning" OFF)
set(NCCLTUNE_SANITIZE "" CACHE STRING "Sanitizers for everything: address,undefined or thread")

if(NCCLTUNE_BUILD_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR
    "The fuzz targets need clang's libFuzzer, and the compiler is ${CMAKE_CXX_COMPILER_ID}; "
    "unset CC and CXX to have clang found, or name one there.")
endif()
