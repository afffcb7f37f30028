# SPDX-License-Identifier: Apache-2.0
# Flags that every target gets, and the two functions that make our targets.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)

add_library(nccltune_flags INTERFACE)
target_include_directories(nccltune_flags INTERFACE ${CMAKE_SOURCE_DIR}/native)
target_compile_options(nccltune_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>
  $<$<BOOL:${NCCLTUNE_WARNINGS_AS_ERRORS}>:-Werror>
  # GCC 12 sees overlaps that cannot be in std::string at -O2 (GCC bug 105651), and pointers to
  # temporaries of members' initializers at -O3, which nobody keeps.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-pointer>
  # Of files that are compiled together GCC takes all but the one that includes them for headers.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  # Logs and error texts name a file by its place in the repository, wherever it was built.
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=
  -ffunction-sections -fdata-sections)
if(NCCLTUNE_SANITIZE)
  target_compile_options(nccltune_flags INTERFACE
    -fsanitize=${NCCLTUNE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(nccltune_flags INTERFACE -fsanitize=${NCCLTUNE_SANITIZE})
endif()
if(NCCLTUNE_BUILD_FUZZERS)
  # Coverage instrumentation for the code under test; only the fuzz target itself links libFuzzer.
  target_compile_options(nccltune_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# nccltune_precompiled(TARGET): in a sanitized build, which looks for no warnings, the standard
# library's headers are read once for all of our libraries. Elsewhere each file has what it includes.
function(nccltune_precompiled name)
  if(NOT NCCLTUNE_SANITIZE OR NCCLTUNE_BUILD_FUZZERS)
    return()
  endif()
  get_property(first GLOBAL PROPERTY NCCLTUNE_FIRST_LIBRARY)
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(${name} PRIVATE
      <algorithm> <array> <atomic> <chrono> <functional> <map> <memory> <mutex> <optional> <string>
      <string_view> <thread> <utility> <vector>)
    set_property(GLOBAL PROPERTY NCCLTUNE_FIRST_LIBRARY ${name})
  endif()
endfunction()

# nccltune_library(NAME SOURCES... ): a static library of ours, usable in shared objects.
function(nccltune_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC nccltune_flags)
  nccltune_precompiled(${name})
endfunction()

# nccltune_plugin(NAME EXPORTS SOURCES...): a shared object that somebody else's process loads. It
# brings its own C++ runtime, exports what the version script EXPORTS lists and needs libc alone.
function(nccltune_plugin name exports)
  add_library(${name} MODULE ${ARGN} ${CMAKE_SOURCE_DIR}/native/common/unload.cc)
  target_link_libraries(${name} PRIVATE nccltune_flags ${CMAKE_DL_LIBS} Threads::Threads)
  target_link_options(${name} PRIVATE
    -static-libgcc $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-static-libstdc++>
    LINKER:--version-script=${exports} LINKER:--exclude-libs,ALL LINKER:--gc-sections
    LINKER:-z,relro,-z,now)
  # A sanitizer's runtime is found in the process, not in the shared object.
  if(NOT NCCLTUNE_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:--no-undefined)
  endif()
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports})
endfunction()
