# SPDX-License-Identifier: Apache-2.0
# Toolchain for the wheels: clang and libc++ from the Python package ziglang, targeting glibc 2.28.
# Set NCCLTUNE_ARCH to x86_64 or aarch64.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NCCLTUNE_ARCH NCCLTUNE_ZIG)
if(NOT NCCLTUNE_ARCH MATCHES "^(x86_64|aarch64)$")
  message(FATAL_ERROR "NCCLTUNE_ARCH is \"${NCCLTUNE_ARCH}\"; x86_64 and aarch64 are known")
endif()
if(NOT NCCLTUNE_ZIG)
  find_program(NCCLTUNE_PYTHON NAMES python3 python REQUIRED)
  execute_process(
    COMMAND ${NCCLTUNE_PYTHON} -c "import ziglang; print(ziglang.__path__[0])"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(NCCLTUNE_ZIG ${folder}/zig CACHE FILEPATH "Program of the package ziglang")
endif()

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${NCCLTUNE_ARCH})
set(target ${NCCLTUNE_ARCH}-linux-gnu.2.28)
# The first link with each set of flags compiles the C++ runtime, which takes a minute. With these
# two variables CMake identifies the compilers without a link.
set(CMAKE_C_COMPILER_TARGET ${target})
set(CMAKE_CXX_COMPILER_TARGET ${target})
set(CMAKE_C_COMPILER ${NCCLTUNE_ZIG} cc)
set(CMAKE_CXX_COMPILER ${NCCLTUNE_ZIG} c++)
# CMake does not identify this assembler, so it passes no target to it.
set(CMAKE_ASM_COMPILER ${NCCLTUNE_ZIG} cc -target ${target})
# The archiver is a subcommand of zig too.
set(CMAKE_AR ${NCCLTUNE_ZIG} CACHE FILEPATH "" FORCE)
foreach(language C CXX ASM)
  set(CMAKE_${language}_ARCHIVE_CREATE "<CMAKE_AR> ar qcs <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_APPEND "<CMAKE_AR> ar qs <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_FINISH "")
endforeach()
# Compiler checks must not link either.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
# Strip debug symbols from the wheels: they are ten times as large as the code.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,-s)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -Wl,-s)
set(CMAKE_SKIP_RPATH ON)
