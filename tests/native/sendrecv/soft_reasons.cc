// SPDX-License-Identifier: Apache-2.0
//
// The texts of the software engine: why nothing can run, and which operations were wrong.
#include <algorithm>
#include <ostream>

#include "sendrecv/soft_engine.h"

namespace nccltune::sendrecv {
std::ostream& operator<<(std::ostream& out, const Waiting& waiting) { return out << waiting.what; }

std::string SoftEngine::TextOf(const StreamState& stream) const {
  std::string text = "GPU " + std::to_string(contexts_[stream.context].gpu) + ", stream " +
                     std::to_string(stream.number);
  const auto named = names_.find(reinterpret_cast<const void*>(stream.number));
  if (named != names_.end()) text += " (" + named->second + ")";
  return text;
}

std::string SoftEngine::CopyText(const StreamState& stream, const work::Copy& copy, bool to,
                                 const std::string& why) const {
  return TextOf(stream) + ": copy of " + std::to_string(copy.bytes) + " bytes from " +
         Hex(copy.from) + " to " + Hex(copy.to) + ", " + (to ? "destination" : "source") + ": " +
         why;
}

Waiting SoftEngine::Reason(const StreamState& stream) const {
  Waiting waiting{.gpu = contexts_[stream.context].gpu,
                  .stream = reinterpret_cast<Stream>(stream.number),
                  .what = TextOf(stream)};
  if (stream.running) {
    waiting.what += ": a kernel waits";
    return waiting;
  }
  const auto queue = std::ranges::find_if(queues_, [&](const std::shared_ptr<Queue>& each) {
    return std::ranges::any_of(each->operations, [&](const Operation& operation) {
      return operation.stream == &stream && operation.sequence == stream.finished + 1;
    });
  });
  if (queue == queues_.end()) return waiting;
  const Operation& front = (*queue)->operations.front();
  if (front.stream != &stream) {
    waiting.what += ": is behind " + TextOf(*front.stream) + " in a hardware queue";
  } else if (const auto* value = std::get_if<work::WaitValue>(&front.work)) {
    waiting.flag = value->flag;
    waiting.value = value->value;
    const auto named = names_.find(value->flag);
    waiting.what +=
        ": waits for flag " +
        (named != names_.end() ? named->second : Hex(reinterpret_cast<uintptr_t>(value->flag))) +
        " to reach " + std::to_string(value->value) + ", it is " +
        std::to_string(value->flag->load(std::memory_order_acquire));
  } else if (const auto* event = std::get_if<work::WaitEvent>(&front.work)) {
    waiting.what += ": waits for an event of stream " + std::to_string(event->mark->stream);
  }
  return waiting;
}

std::vector<Waiting> SoftEngine::Blocked() const {
  std::vector<Waiting> blocked;
  if (Moves()) return blocked;
  for (const StreamState* stream : streams_) {
    if (stream->pending > 0) blocked.push_back(Reason(*stream));
  }
  return blocked;
}

}  // namespace nccltune::sendrecv
