// SPDX-License-Identifier: Apache-2.0
#include "net/profiler_event.h"

#include <atomic>

namespace nccltune::net {
namespace {

constinit std::atomic<abi::NetProfilerCallback> profiler = nullptr;

// A request uses several sockets, so no single descriptor applies.
constexpr int kNoDescriptor = -1;

}  // namespace

void TakeProfiler(abi::NetProfilerCallback callback) noexcept {
  profiler.store(callback, std::memory_order_relaxed);
}

void BeginEvent(int operation, void* parent, size_t bytes, void** event) noexcept {
  const abi::NetProfilerCallback callback = profiler.load(std::memory_order_relaxed);
  // NCCL's bootstrap passes no parent. The callback would dereference a null parent.
  if (callback == nullptr || parent == nullptr) return;
  abi::ProfilerNetSocketV1 transfer = {.type = abi::kProfilerSocketTransfer,
                                       .fd = kNoDescriptor,
                                       .operation = operation,
                                       .bytes = bytes};
  (void)callback(event, abi::kNetEventStart, parent, abi::kProfilerNetSocketV1, &transfer);
}

void EndEvent(void** event) noexcept {
  if (*event == nullptr) return;
  const abi::NetProfilerCallback callback = profiler.load(std::memory_order_relaxed);
  if (callback != nullptr) (void)callback(event, abi::kNetEventStop, nullptr, 0, nullptr);
  *event = nullptr;
}

}  // namespace nccltune::net
