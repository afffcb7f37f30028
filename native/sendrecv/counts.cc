// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/counts.h"

namespace nccltune::sendrecv {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Way::kCount)> kWords = {
    "copy engine, pushed",
    "copy engine, pulled",
    "copy engine, staged",
    "copy engine, through the receiver's buffer",
    "NCCL: small",
    "NCCL: rank of another host, or that is not able",
    "NCCL: first message from one rank to another",
    "NCCL: sent before it was received",
    "NCCL: decided by the peer",
    "NCCL: captured in a graph, or behind one that is",
    "NCCL: memory cannot be shared",
    "NCCL: not memory of the GPU, or of several allocations",
    "NCCL: memory not mapped by the peer yet",
    "NCCL: memory that the peer cannot map",
    "NCCL: more memory than can be offered at once",
    "NCCL: dry run, a copy engine would have carried it",
    "contents checked",
};

}  // namespace

std::string_view WordsOf(Way way) { return kWords[static_cast<size_t>(way)]; }

Counts::Both Counts::Of(Way way) const {
  const Counter& counter = counters_[static_cast<size_t>(way)];
  return {.messages = counter.messages.load(std::memory_order_relaxed),
          .bytes = counter.bytes.load(std::memory_order_relaxed)};
}

std::string Counts::Words() const {
  std::string words;
  for (size_t i = 0; i < counters_.size(); ++i) {
    const Both both = Of(static_cast<Way>(i));
    if (both.messages == 0) continue;
    words += std::string(kWords[i]) + ": " + std::to_string(both.messages) + " messages, " +
             std::to_string(both.bytes) + " bytes\n";
  }
  return words;
}

}  // namespace nccltune::sendrecv
