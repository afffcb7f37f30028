// SPDX-License-Identifier: Apache-2.0
//
// How a call of NCCL's ends that cannot be served: one line in the log, and a result.
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

// Makes `function` the process's logger: most calls name no communicator.
Log TakeLog(abi::LogFunction function) noexcept;
Log NewestLog() noexcept;

// Warns, and gives `result` back. Needs no memory: this is how its lack is told.
__attribute__((format(printf, 2, 3))) abi::Result Refuse(abi::Result result, const char* format,
                                                         ...) noexcept;

// For a pointer of NCCL's that may not be null.
abi::Result RefuseNull(const char* call, const char* what) noexcept;

// Runs `work`, out of which no exception comes.
template <typename Work>
abi::Result Guarded(const char* call, const Work& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Refuse(abi::kSystemError, "%s: out of memory", call);
  } catch (const std::exception& error) {
    return Refuse(abi::kInternalError, "%s: %s", call, error.what());
  } catch (...) {
    return Refuse(abi::kInternalError, "%s: an exception of no known kind", call);
  }
}

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_REFUSAL_H_
