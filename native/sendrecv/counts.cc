// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/counts.h"

namespace nccltune::sendrecv {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Route::kCount)> kDescriptions = {
    "copy engine, pushed",
    "copy engine, pulled",
    "copy engine, staged",
    "copy engine, through the receiver's buffer",
    "NCCL: small",
    "NCCL: peer on another host, or unable to use copy engines",
    "NCCL: first message from one rank to another",
    "NCCL: no free slot between the two ranks",
    "NCCL: sent before it was received",
    "NCCL: received before it was sent, with one connection or without NVLink",
    "NCCL: after a message that held up others, with one connection",
    "NCCL: decided by the peer",
    "NCCL: captured in a graph, or after a captured message",
    "NCCL: the peer has ended the communicator",
    "NCCL: memory cannot be shared",
    "NCCL: not GPU memory, or in several allocations",
    "NCCL: memory not mapped by the peer yet",
    "NCCL: memory that the peer cannot map",
    "NCCL: too many allocations exported",
    "NCCL: stream of another CUDA context",
    "NCCL: switched off",
    "NCCL: dry run, a copy engine would have carried it",
    "contents checked",
};

}  // namespace

std::string_view DescribeRoute(Route route) { return kDescriptions[static_cast<size_t>(route)]; }

Counts::Total Counts::Get(Route route) const {
  const Counter& counter = counters_[static_cast<size_t>(route)];
  return {.messages = counter.messages.load(std::memory_order_relaxed),
          .bytes = counter.bytes.load(std::memory_order_relaxed)};
}

std::string Counts::Report(std::string_view separator) const {
  std::string text;
  for (size_t i = 0; i < counters_.size(); ++i) {
    const Total total = Get(static_cast<Route>(i));
    if (total.messages == 0) continue;
    text += std::string(kDescriptions[i]) + ": " + std::to_string(total.messages) + " messages, " +
            std::to_string(total.bytes) + " bytes";
    text += separator;
  }
  return text;
}

}  // namespace nccltune::sendrecv
