// SPDX-License-Identifier: Apache-2.0
// Types that NCCL's functions and all kinds of its plugins share: results, the logger and the id of
// a communicator. These are our own declarations of NCCL's public interface, checked against
// NCCL 2.13 to 2.30.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nccltune::abi {

// NCCL's name: ncclResult_t.
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// NCCL's name: ncclDebugLogLevel.
enum LogLevel : int {
  kLogNone = 0,
  kLogVersion = 1,
  kLogWarn = 2,
  kLogInfo = 3,
  kLogAbort = 4,
  kLogTrace = 5,
};

// ncclDebugLogSubSys, the bits that our plugins use.
inline constexpr unsigned long kSubsysInit = 0x1;
inline constexpr unsigned long kSubsysNet = 0x10;
inline constexpr unsigned long kSubsysTuning = 0x40;
inline constexpr unsigned long kSubsysEnv = 0x80;

// NCCL's name: ncclDebugLogger_t.
using LogFunction = void (*)(LogLevel level, unsigned long flags, const char* file, int line,
                             const char* format, ...);

// ncclUniqueId, passed by value: on the stack on x86-64, by reference on aarch64.
struct UniqueId {
  char internal[128];
};

static_assert(sizeof(Result) == 4 && sizeof(LogLevel) == 4);
static_assert(sizeof(UniqueId) == 128 && alignof(UniqueId) == 1);

}  // namespace nccltune::abi
