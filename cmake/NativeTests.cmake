# SPDX-License-Identifier: Apache-2.0
# GoogleTest in CTest. Without GoogleTest the build still works, and CTest shows one skipped test
# that says why.
include(GoogleTest)
find_package(GTest QUIET)

# nccltune_skipped_test(NAME REASON): a test that is reported as skipped with its reason.
function(nccltune_skipped_test name reason)
  add_test(NAME ${name} COMMAND sh -c "echo \"skipped: ${reason}\"; exit 77")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# nccltune_test(NAME SOURCES... LIBRARIES...): one GoogleTest program; each of its tests is a test
# of CTest, or under sanitizers all of them are one. Does nothing when GoogleTest is missing.
# SHARDS N: under sanitizers N tests, each with a part of the program's, for what takes long.
# ONE_THREAD [FILTER]: the program's tests, or those that fit the filter, tell the thread sanitizer
# nothing: one thread computes, or other processes do.
function(nccltune_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "ONE_THREAD;SHARDS" "SOURCES;LIBRARIES;DEFINITIONS")
  if(NOT GTest_FOUND)
    return()
  endif()
  if(NCCLTUNE_SANITIZE STREQUAL "thread" AND arg_ONE_THREAD STREQUAL "*")
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE nccltune_flags ${arg_LIBRARIES} GTest::gtest_main
                                        ${CMAKE_DL_LIBS} Threads::Threads)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/native)
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  # What runs for a moment is not worth optimising, and GoogleTest's header is read once, by the
  # first program for all of them: a third of the time to compile. Not for an optimised build: GCC 12
  # then warns of what it sees in a precompiled std::string, as if that were ours.
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(${name} PRIVATE -O0)
    get_property(first GLOBAL PROPERTY NCCLTUNE_FIRST_TEST)
    if(first)
      target_precompile_headers(${name} REUSE_FROM ${first})
    else()
      target_precompile_headers(${name} PRIVATE <gtest/gtest.h> <algorithm> <thread>)
      set_property(GLOBAL PROPERTY NCCLTUNE_FIRST_TEST ${name})
    endif()
  endif()
  if(NCCLTUNE_SANITIZE)
    # A sanitized process takes a tenth of a second to start.
    set(filter "")
    if(NCCLTUNE_SANITIZE STREQUAL "thread" AND arg_ONE_THREAD)
      set(filter --gtest_filter=-${arg_ONE_THREAD})
    endif()
    if(NOT arg_SHARDS)
      set(arg_SHARDS 1)
    endif()
    # The largest first.
    list(LENGTH arg_SOURCES cost)
    foreach(shard RANGE 1 ${arg_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${name} ${filter})
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 300 COST ${cost}
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 120)
endfunction()
