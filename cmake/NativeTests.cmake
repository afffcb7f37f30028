# SPDX-License-Identifier: Apache-2.0
# Functions that add GoogleTest programs to CTest. Without GoogleTest the build still works, and
# CTest shows one skipped test with the reason.
include(GoogleTest)
find_package(GTest QUIET)

# nccltune_skipped_test(NAME REASON): adds a test that is reported as skipped with that reason.
function(nccltune_skipped_test name reason)
  add_test(NAME ${name} COMMAND sh -c "echo \"skipped: ${reason}\"; exit 77")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# nccltune_test_program(NAME): compiles a program of the tests quickly. It runs too briefly to be
# worth optimizing, unless sanitizers slow it down. What each test includes is precompiled once for
# all programs, which saves two thirds of the compile time. Optimized builds do not use it: GCC 12
# then reports false warnings in the precompiled std::string.
function(nccltune_test_program name)
  target_link_libraries(${name} PRIVATE nccltune_flags GTest::gtest)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/native)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    return()
  endif()
  if(NOT NCCLTUNE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  get_property(first GLOBAL PROPERTY NCCLTUNE_FIRST_TEST)
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/native/testing.h)
    set_property(GLOBAL PROPERTY NCCLTUNE_FIRST_TEST ${name})
  endif()
endfunction()

# nccltune_test(NAME SOURCES... LIBRARIES...): adds a GoogleTest program. Each of its tests becomes
# a CTest test; under sanitizers the whole program is one CTest test. Does nothing if GoogleTest is
# missing.
# SHARDS N: under sanitizers, split a slow program into N CTest tests.
# ONE_THREAD [FILTER]: skip the program, or the tests that match the filter, under the thread
#    sanitizer, because the tested code runs in a single thread or in other processes.
function(nccltune_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "ONE_THREAD;SHARDS" "SOURCES;LIBRARIES;DEFINITIONS")
  if(NOT GTest_FOUND)
    return()
  endif()
  if(NCCLTUNE_SANITIZE STREQUAL "thread" AND arg_ONE_THREAD STREQUAL "*")
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  nccltune_test_program(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest_main ${CMAKE_DL_LIBS}
                                        Threads::Threads)
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  if(NCCLTUNE_SANITIZE)
    # One process for all tests: a sanitized process takes 0.1 s to start.
    set(filter "")
    if(NCCLTUNE_SANITIZE STREQUAL "thread" AND arg_ONE_THREAD)
      set(filter --gtest_filter=-${arg_ONE_THREAD})
    endif()
    if(NOT arg_SHARDS)
      set(arg_SHARDS 1)
    endif()
    # Run the slowest programs first: those that are split, and the largest. The timeout is only for
    # hangs: next to other sanitized programs a test can take ten times as long as alone.
    list(LENGTH arg_SOURCES cost)
    math(EXPR cost "${cost} * ${arg_SHARDS}")
    foreach(shard RANGE 1 ${arg_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${name} ${filter})
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 900 COST ${cost}
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 900)
endfunction()
