// SPDX-License-Identifier: Apache-2.0
//
// Functions that make a call from NCCL fail: they log one line and return an error.
#ifndef NCCLTUNE_NET_REFUSAL_H_
#define NCCLTUNE_NET_REFUSAL_H_

#include <exception>
#include <new>
#include <string_view>

#include "abi/nccl_types.h"
#include "common/log.h"

namespace nccltune::net {

inline constexpr std::string_view kLogPrefix = "NET/nccltune: ";
inline constexpr unsigned long kLogSubsystems = abi::kSubsysInit | abi::kSubsysNet;

// Makes `function` the logger of the whole process, because most calls name no communicator.
// Returns a log that uses this logger.
Log TakeLog(abi::LogFunction function) noexcept;
Log NewestLog() noexcept;

// Logs a warning and returns `result`. Allocates no memory, because it must also work when memory
// has run out.
__attribute__((format(printf, 2, 3))) abi::Result Refuse(abi::Result result, const char* format,
                                                         ...) noexcept;

// Logs that a pointer from NCCL, described by `what`, is null. Returns kInvalidArgument.
abi::Result RefuseNull(const char* call, const char* what) noexcept;

// Returns the result of `work`. If `work` throws, logs a warning and returns an error.
template <typename Work>
abi::Result Guarded(const char* call, const Work& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Refuse(abi::kSystemError, "%s: out of memory", call);
  } catch (const std::exception& error) {
    return Refuse(abi::kInternalError, "%s: %s", call, error.what());
  } catch (...) {
    return Refuse(abi::kInternalError, "%s: unknown exception", call);
  }
}

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_REFUSAL_H_
