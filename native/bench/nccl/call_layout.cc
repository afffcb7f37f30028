// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/call_layout.h"

#include <string>

namespace nccltune::bench {
namespace {

constexpr size_t kAlignment = 16;

// Returns whether the step's size is divided among the ranks. If so, the count argument of the call
// is the number of elements of one rank.
bool IsShared(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return true;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kAllReduce:
    case Collective::kSendRecv:
      return false;
  }
  return false;
}

StepError ImpossibleCall(std::string text) {
  return {.kind = ErrorKind::kUnsupported, .text = std::move(text), .rank = -1, .fatal = false};
}

size_t CountFor(const Step& step, int ranks) {
  const size_t element = static_cast<size_t>(SizeOf(step.dtype));
  const size_t bytes = step.bytes / static_cast<size_t>(step.group_calls);
  if (!IsShared(step.collective)) return bytes / element;
  const size_t share = bytes / static_cast<size_t>(ranks);
  const bool whole = bytes % (static_cast<size_t>(ranks) * element) == 0;
  if (whole || share < kAlignment) return share / element;
  return share / kAlignment * kAlignment / element;
}

}  // namespace

size_t SpanOf(const Step& step, size_t region_bytes) {
  if (step.group_calls == 1) return region_bytes;
  const size_t place = (region_bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
  return place * static_cast<size_t>(step.group_calls);
}

std::optional<StepError> LayOut(const Step& step, int ranks, CallLayout* layout) {
  if (HasRoot(step.collective) && (step.root < 0 || step.root >= ranks)) {
    return ImpossibleCall("there is no rank " + std::to_string(step.root) + " to be the root");
  }
  const size_t element = static_cast<size_t>(SizeOf(step.dtype));
  *layout = {};
  layout->count = CountFor(step, ranks);
  if (layout->count == 0) {
    return ImpossibleCall(std::to_string(step.bytes) + " bytes hold no element of " +
                          std::to_string(element) + " bytes" +
                          (IsShared(step.collective) ? " for each rank" : "") +
                          (step.group_calls > 1 ? " in each call of the group" : ""));
  }
  const size_t part = layout->count * element;
  const size_t whole = IsShared(step.collective) ? part * static_cast<size_t>(ranks) : part;
  layout->bytes = whole * static_cast<size_t>(step.group_calls);
  layout->send_bytes = whole;
  layout->receive_bytes = whole;
  if (step.collective == Collective::kAllGather || step.collective == Collective::kGather) {
    layout->send_bytes = part;
  }
  if (step.collective == Collective::kReduceScatter || step.collective == Collective::kScatter) {
    layout->receive_bytes = part;
  }
  return std::nullopt;
}

std::vector<ResultPart> ResultOf(const Step& step, const CallLayout& layout, int rank, int ranks) {
  const size_t count = layout.count;
  const size_t part = count * static_cast<size_t>(SizeOf(step.dtype));
  const size_t own = count * static_cast<size_t>(rank);
  std::vector<ResultPart> parts;
  switch (step.collective) {
    case Collective::kBroadcast:
      parts.push_back({step.root, 0, count, 0});
      break;
    case Collective::kReduce:
      if (rank == step.root) parts.push_back({ResultPart::kReduced, 0, count, 0});
      break;
    case Collective::kAllReduce:
      parts.push_back({ResultPart::kReduced, 0, count, 0});
      break;
    case Collective::kReduceScatter:
      parts.push_back({ResultPart::kReduced, 0, count, own});
      break;
    case Collective::kSendRecv:
      parts.push_back({(rank + ranks - 1) % ranks, 0, count, 0});
      break;
    case Collective::kScatter:
      parts.push_back({step.root, 0, count, own});
      break;
    case Collective::kGather:
      if (rank != step.root) break;
      [[fallthrough]];
    case Collective::kAllGather:
      for (int source = 0; source < ranks; ++source) {
        parts.push_back({source, part * static_cast<size_t>(source), count, 0});
      }
      break;
    case Collective::kAllToAll:
      for (int source = 0; source < ranks; ++source) {
        parts.push_back({source, part * static_cast<size_t>(source), count, own});
      }
      break;
  }
  return parts;
}

}  // namespace nccltune::bench
