# SPDX-License-Identifier: Apache-2.0
# Compiler and linker flags, and the functions that create our targets.
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
  # False warnings of GCC 12: overlapping copies in std::string at -O2 (GCC bug 105651), and
  # dangling pointers to temporaries in member initializers at -O3.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-pointer>
  # In a unity build GCC treats every file except the one that includes the others as a header.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  # Logs and error messages name a file by its path in the repository, wherever it was built.
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

# nccltune_precompiled(TARGET): in a sanitized build, precompiles the standard library's headers
# once for all our libraries. Other builds do not, because there a missing include must be an error.
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

# Every binary links the C++ runtime statically. The toolchain of the wheels always does.
set(NCCLTUNE_STATIC_RUNTIME "")
if(NOT NCCLTUNE_ZIG)
  set(NCCLTUNE_STATIC_RUNTIME
    -static-libgcc $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-static-libstdc++>)
endif()

# nccltune_program(NAME): sets the link options of a program that is installed.
function(nccltune_program name)
  target_link_options(${name} PRIVATE
    ${NCCLTUNE_STATIC_RUNTIME} LINKER:--gc-sections LINKER:-z,relro,-z,now)
endfunction()

# nccltune_program_exports(LIBRARY LIST): programs that link LIBRARY export the symbols in LIST to
# the libraries they load. The linker of the wheels has no option for this. It exports every symbol
# that a shared object on its command line refers to, so it gets a generated object that refers to
# the listed symbols. Programs do not need that object at run time.
function(nccltune_program_exports library list)
  if(NOT NCCLTUNE_ZIG)
    target_link_options(${library} INTERFACE LINKER:--dynamic-list=${list})
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^  [A-Za-z0-9_]+;$")
  set(source "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "[A-Za-z0-9_]+" symbol ${line})
    string(APPEND source
           "extern const char ${symbol}[];\nconst char* const of_${symbol} = ${symbol};\n")
  endforeach()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${library}_exports.c)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT "${source}")
  add_library(${library}_exports SHARED ${file})
  set_target_properties(${library}_exports PROPERTIES C_VISIBILITY_PRESET default)
  target_link_libraries(${library} INTERFACE LINKER:--as-needed ${library}_exports)
endfunction()

# nccltune_library(NAME SOURCES...): a static library that can also be linked into shared objects.
function(nccltune_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC nccltune_flags)
  nccltune_precompiled(${name})
endfunction()

# nccltune_plugin(NAME EXPORTS SOURCES...): a shared object that is loaded into other people's
# processes. It links the C++ runtime statically, exports what the version script EXPORTS lists, and
# needs only libc.
function(nccltune_plugin name exports)
  add_library(${name} MODULE ${ARGN} ${CMAKE_SOURCE_DIR}/native/common/unload.cc)
  target_link_libraries(${name} PRIVATE nccltune_flags ${CMAKE_DL_LIBS} Threads::Threads)
  target_link_options(${name} PRIVATE
    ${NCCLTUNE_STATIC_RUNTIME}
    LINKER:--version-script=${exports} LINKER:--gc-sections LINKER:-z,relro,-z,now)
  # The sanitizer runtime is in the process, so its symbols are undefined in the shared object.
  if(NOT NCCLTUNE_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:--no-undefined)
  endif()
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports})
endfunction()
