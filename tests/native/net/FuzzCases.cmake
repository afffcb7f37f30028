# SPDX-License-Identifier: Apache-2.0
if(NOT TARGET nccltune_net_fuzz)
  add_library(nccltune_net_fuzz STATIC
    ${CMAKE_CURRENT_LIST_DIR}/fuzz_receiver.cc
    ${CMAKE_CURRENT_LIST_DIR}/fuzz_sender.cc
    ${CMAKE_CURRENT_LIST_DIR}/fuzz_wire.cc)
  target_link_libraries(nccltune_net_fuzz PUBLIC nccltune_net_core)
  target_include_directories(nccltune_net_fuzz PRIVATE ${CMAKE_SOURCE_DIR}/tests/native)
endif()
