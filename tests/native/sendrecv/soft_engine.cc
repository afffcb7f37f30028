// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/soft_engine.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <ostream>
#include <utility>

namespace nccltune::sendrecv {
namespace {

constexpr size_t kMostPieces = 6;
constexpr uint64_t kUndrawn = std::numeric_limits<uint64_t>::max();

bool Satisfied(const Work& work) {
  if (const auto* value = std::get_if<work::WaitValue>(&work)) {
    return Reached(value->flag->load(std::memory_order_acquire), value->value);
  }
  if (const auto* event = std::get_if<work::WaitEvent>(&work)) return event->mark->done;
  return true;
}

// The least distance between two allocations. An access past the end never reaches another one.
constexpr DeviceAddress kGap = DeviceAddress{2} << 20;
constexpr uint8_t kFresh = 0xEE;

}  // namespace

SoftEngine::SoftEngine(int gpus, unsigned delay_bits)
    : delay_bits_(delay_bits), copy_engines_(static_cast<size_t>(gpus)) {}

void SoftEngine::NewContext(int process, int gpu, size_t hardware_queues) {
  Context context;
  context.process = process;
  context.gpu = gpu;
  for (size_t i = 0; i < hardware_queues; ++i) {
    context.queues.push_back(queues_.emplace_back(std::make_shared<Queue>()));
  }
  contexts_.push_back(std::move(context));
}

void SoftEngine::NewSharedContext(int process, int gpu) {
  NewContext(process, gpu, 1);
  contexts_.back().pushes = queues_.emplace_back(std::make_shared<Queue>());
  contexts_.back().pulls = queues_.emplace_back(std::make_shared<Queue>());
}

uint64_t SoftEngine::NewStream(size_t context_number) {
  Context& context = contexts_[context_number];
  auto stream = std::make_unique<StreamState>();
  stream->number = ++numbers_;
  stream->context = context_number;
  if (context.queues.empty()) {
    stream->queue = queues_.emplace_back(std::make_shared<Queue>());
  } else {
    stream->queue = context.queues[context.next_queue++ % context.queues.size()];
  }
  stream->last_queue = stream->queue;
  if (context.pulls != nullptr) {
    stream->records = queues_.emplace_back(std::make_shared<Queue>());
  }
  streams_.push_back(stream.get());
  return by_number_.emplace(stream->number, std::move(stream)).first->first;
}

bool SoftEngine::DeleteStream(uint64_t stream) {
  const auto found = by_number_.find(stream);
  if (found == by_number_.end() || found->second->deleted) return false;
  found->second->deleted = true;
  if (found->second->pending == 0) Forget(*found->second);
  return true;
}

void SoftEngine::Forget(const StreamState& stream) {
  std::erase(streams_, &stream);
  if (contexts_[stream.context].queues.empty()) std::erase(queues_, stream.queue);
  if (stream.records != nullptr) std::erase(queues_, stream.records);
  by_number_.erase(stream.number);
}

bool SoftEngine::HasStream(size_t context, uint64_t stream) const {
  const auto found = by_number_.find(stream);
  return found != by_number_.end() && !found->second->deleted && found->second->context == context;
}

void SoftEngine::Enqueue(uint64_t stream, Work work) {
  StreamState& state = *by_number_.at(stream);
  ++state.pending;
  ++pending_;
  const std::shared_ptr<Queue> chosen = QueueFor(state, work);
  if (!std::holds_alternative<work::Record>(work)) state.last_queue = chosen;
  Queue& queue = *chosen;
  if (queue.operations.empty()) queue.due = kUndrawn;
  queue.operations.push_back(
      {.stream = &state, .work = std::move(work), .sequence = ++state.enqueued});
}

std::shared_ptr<SoftEngine::Queue> SoftEngine::QueueFor(const StreamState& stream,
                                                        const Work& work) const {
  const Context& context = contexts_[stream.context];
  if (context.pulls == nullptr) return stream.queue;
  if (const auto* copy = std::get_if<work::Copy>(&work)) {
    const auto far = [&](DeviceAddress address) {
      const std::optional<int> gpu = memory_.GpuOf(address);
      return gpu && *gpu != context.gpu;
    };
    if (far(copy->to)) return context.pushes;
    return far(copy->from) ? context.pulls : stream.queue;
  }
  if (std::holds_alternative<work::WriteValue>(work)) return stream.last_queue;
  return std::holds_alternative<work::Record>(work) ? stream.records : stream.queue;
}

void SoftEngine::Kill(int process) {
  memory_.Kill(process);
  const std::vector<StreamState*> streams = streams_;
  for (StreamState* stream : streams) {
    const Context& context = contexts_[stream->context];
    if (context.process != process) continue;
    size_t dropped = 0;
    for (const std::shared_ptr<Queue>& queue : queues_) {
      const size_t here = std::erase_if(queue->operations, [&](const Operation& operation) {
        return operation.stream == stream;
      });
      if (here > 0) queue->due = kUndrawn;
      dropped += here;
    }
    if (stream->running && !stream->in_body) {
      std::erase(copy_engines_[static_cast<size_t>(context.gpu)], stream);
      stream->running.reset();
      ++dropped;
    }
    stream->pending -= dropped;
    pending_ -= dropped;
    stream->deleted = true;
    if (stream->pending == 0) Forget(*stream);
  }
}

bool SoftEngine::Idle(uint64_t stream) const {
  const auto found = by_number_.find(stream);
  return found == by_number_.end() || found->second->pending == 0;
}

bool SoftEngine::CanStart(const Queue& queue) const {
  if (queue.operations.empty()) return false;
  const Operation& front = queue.operations.front();
  return !front.stream->running && front.stream->finished + 1 == front.sequence &&
         Satisfied(front.work);
}

bool SoftEngine::CanGoOn(const StreamState& stream) const {
  if (!stream.running || stream.in_body) return false;
  if (const auto* kernel = std::get_if<work::Kernel>(&*stream.running)) {
    return !kernel->until || kernel->until();
  }
  const int gpu = contexts_[stream.context].gpu;
  return copy_engines_[static_cast<size_t>(gpu)].front() == &stream;
}

bool SoftEngine::CanMove(size_t actor) const {
  return actor < queues_.size() ? CanStart(*queues_[actor])
                                : CanGoOn(*streams_[actor - queues_.size()]);
}

uint64_t& SoftEngine::Due(size_t actor) {
  return actor < queues_.size() ? queues_[actor]->due : streams_[actor - queues_.size()]->due;
}

bool SoftEngine::Moves() const {
  if (bodies_ > 0) return true;
  // A kernel that waits may write what another one waits for that was asked before it. So ask all
  // of them twice.
  for (size_t turn = 0; turn < 2 * actors(); ++turn) {
    if (CanMove(turn % actors())) return true;
  }
  return NextWake() != work::kNever;
}

uint64_t SoftEngine::NextWake() const {
  uint64_t next = work::kNever;
  for (const StreamState* stream : streams_) {
    if (!stream->running || stream->in_body) continue;
    const auto* kernel = std::get_if<work::Kernel>(&*stream->running);
    if (kernel != nullptr && kernel->wake) next = std::min(next, kernel->wake());
  }
  return next;
}

// Nothing can run but what waits for a time. Sometimes that time comes before anything else.
bool SoftEngine::PassTime(Random& random) {
  const uint64_t next = NextWake();
  if (next == work::kNever) return Moves();
  now_ = random() % 8 == 0 ? std::max(now_, next) : now_ + 1;
  return true;
}

// Half of the operations have no delay. The others have short to very long ones, so that one may be
// later than all others.
uint64_t SoftEngine::Delay(Random& random) const {
  const uint64_t drawn = random();
  if (delay_bits_ == 0 || (drawn & 1) == 0) return 0;
  const uint64_t bits = 1 + (drawn >> 1) % 64 % delay_bits_;
  return (drawn >> 8) & ((uint64_t{1} << bits) - 1);
}

std::optional<size_t> SoftEngine::Choose(Random& random) {
  const size_t count = actors();
  if (count == 0) return std::nullopt;
  std::optional<size_t> earliest;
  const size_t first = random() % count;
  for (size_t i = 0; i < count; ++i) {
    const size_t actor = (first + i) % count;
    if (!CanMove(actor)) continue;
    uint64_t& due = Due(actor);
    if (due == kUndrawn) due = now_ + Delay(random);
    if (due <= now_) return actor;
    if (!earliest || due < Due(*earliest)) earliest = actor;
  }
  if (earliest) now_ = Due(*earliest);
  return earliest;
}

bool SoftEngine::Step(Random& random, Body& body) {
  const std::optional<size_t> actor = Choose(random);
  if (!actor) return PassTime(random);
  ++now_;
  Due(*actor) = kUndrawn;
  if (*actor < queues_.size()) {
    Start(*queues_[*actor], random);
  } else {
    GoOn(*streams_[*actor - queues_.size()], random, body);
  }
  return true;
}

void SoftEngine::Start(Queue& queue, Random& random) {
  Operation operation = std::move(queue.operations.front());
  queue.operations.pop_front();
  StreamState& stream = *operation.stream;
  if (auto* copy = std::get_if<work::Copy>(&operation.work)) {
    StartCopy(stream, *copy, random, false);
    return;
  }
  if (!std::holds_alternative<work::Kernel>(operation.work)) {
    if (auto* write = std::get_if<work::WriteValue>(&operation.work)) {
      write->flag->store(write->value, std::memory_order_release);
    } else if (auto* record = std::get_if<work::Record>(&operation.work)) {
      record->mark->done = true;
    }
    End(stream);
    return;
  }
  stream.due = kUndrawn;
  stream.running = std::move(operation.work);
  if (const auto& start = std::get<work::Kernel>(*stream.running).start) start();
}

void SoftEngine::StartCopy(StreamState& stream, work::Copy copy, Random& random, bool first) {
  copy.pieces = std::clamp<size_t>(random() % kMostPieces + 1, 1, std::max(copy.bytes, size_t{1}));
  copy.first = random() % copy.pieces;
  copy.backwards = random() % 2 == 0;
  auto& engine = copy_engines_[static_cast<size_t>(contexts_[stream.context].gpu)];
  engine.insert(first ? engine.begin() : engine.end(), &stream);
  stream.due = kUndrawn;
  stream.running = copy;
}

void SoftEngine::GoOn(StreamState& stream, Random& random, Body& body) {
  if (!stream.running) return;
  if (auto* kernel = std::get_if<work::Kernel>(&*stream.running)) {
    stream.in_body = true;
    ++bodies_;
    body = {.stream = stream.number, .run = std::move(kernel->body)};
    return;
  }
  if (!MovePiece(stream, std::get<work::Copy>(*stream.running))) return;
  copy_engines_[static_cast<size_t>(contexts_[stream.context].gpu)].pop_front();
  stream.running.reset();
  Queue& queue = *stream.queue;
  const bool own = contexts_[stream.context].pulls == nullptr;
  if (own && !queue.operations.empty() && queue.operations.front().stream == &stream) {
    if (const auto* next = std::get_if<work::Copy>(&queue.operations.front().work)) {
      StartCopy(stream, *next, random, true);
      queue.operations.pop_front();
      queue.due = kUndrawn;
    }
  }
  End(stream);
}

void SoftEngine::Finish(const Body& body) {
  StreamState& stream = *by_number_.at(body.stream);
  stream.in_body = false;
  --bodies_;
  stream.running.reset();
  End(stream);
}

void SoftEngine::End(StreamState& stream) {
  ++stream.finished;
  --stream.pending;
  --pending_;
  if (stream.deleted && stream.pending == 0) Forget(stream);
}

uint8_t* SoftEngine::FindEnd(const StreamState& stream, const work::Copy& copy, bool to) {
  std::string why;
  uint8_t* const found =
      memory_.Find(contexts_[stream.context].process, to ? copy.to : copy.from, copy.bytes, why);
  if (found == nullptr) errors_.push_back(CopyText(stream, copy, to, why));
  return found;
}

bool SoftEngine::MovePiece(const StreamState& stream, work::Copy& copy) {
  // Checked at each piece, because the memory may have been freed since the last one.
  uint8_t* const to = FindEnd(stream, copy, true);
  const uint8_t* const from = FindEnd(stream, copy, false);
  if (to == nullptr || from == nullptr) return true;
  const size_t turn = (copy.first + copy.moved) % copy.pieces;
  const size_t piece = copy.backwards ? copy.pieces - 1 - turn : turn;
  const size_t begin = copy.bytes * piece / copy.pieces;
  const size_t end = copy.bytes * (piece + 1) / copy.pieces;
  if (end > begin) std::memmove(to + begin, from + begin, end - begin);
  return ++copy.moved == copy.pieces;
}

std::string Hex(DeviceAddress address) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, address);
  return text.data();
}

DeviceAddress SoftMemory::NextAddress(size_t bytes) {
  const DeviceAddress at = next_;
  next_ += (bytes + kGap - 1) / kGap * kGap + kGap;
  return at;
}

void SoftMemory::Put(DeviceAddress at, int process, int gpu, size_t bytes) {
  const auto allocation = std::make_shared<Allocation>();
  allocation->number = ++allocations_;
  allocation->process = process;
  allocation->gpu = gpu;
  allocation->bytes.assign(bytes, kFresh);
  mappings_[at] = {.process = process, .bytes = bytes, .allocation = allocation};
}

DeviceAddress SoftMemory::Allocate(int process, int gpu, size_t bytes) {
  if (bytes == 0) return 0;
  const DeviceAddress at = NextAddress(bytes);
  Put(at, process, gpu, bytes);
  return at;
}

const std::pair<const DeviceAddress, SoftMemory::Mapping>* SoftMemory::At(
    DeviceAddress address) const {
  const auto after = mappings_.upper_bound(address);
  return after == mappings_.begin() ? nullptr : &*std::prev(after);
}

bool SoftMemory::AllocateAt(int process, int gpu, DeviceAddress at, size_t bytes) {
  const auto* const there = At(at);
  if (bytes == 0 || there == nullptr || there->second.process != process ||
      there->second.imported || !there->second.allocation->freed ||
      at - there->first >= there->second.bytes ||
      bytes > there->second.bytes - (at - there->first)) {
    return false;
  }
  // The parts before and after the new allocation stay unmapped.
  const DeviceAddress start = there->first;
  mappings_.erase(start);
  Put(at, process, gpu, bytes);
  return true;
}

bool SoftMemory::Free(int process, DeviceAddress address) {
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.process != process || found->second.imported ||
      found->second.allocation->freed) {
    return false;
  }
  found->second.allocation->freed = true;
  std::vector<uint8_t>().swap(found->second.allocation->bytes);
  return true;
}

DeviceAddress SoftMemory::Import(int process, int owner, DeviceAddress address) {
  std::string why;
  if (Find(owner, address, 0, why) == nullptr) return 0;
  const auto* const there = At(address);
  const DeviceAddress at = NextAddress(there->second.bytes);
  mappings_[at] = {.process = process,
                   .bytes = there->second.bytes,
                   .imported = true,
                   .allocation = there->second.allocation};
  return at + (address - there->first);
}

bool SoftMemory::Unmap(int process, DeviceAddress start) {
  const auto found = mappings_.find(start);
  if (found == mappings_.end() || found->second.process != process || !found->second.imported ||
      found->second.unmapped) {
    return false;
  }
  found->second.unmapped = true;
  return true;
}

void SoftMemory::Kill(int process) {
  for (auto& [start, mapping] : mappings_) {
    if (mapping.process == process) mapping.unmapped = true;
  }
}

std::string SoftMemory::NameOf(const Mapping& mapping) {
  const Allocation& allocation = *mapping.allocation;
  return "allocation " + std::to_string(allocation.number) + " (" + std::to_string(mapping.bytes) +
         " bytes on GPU " + std::to_string(allocation.gpu) + ", process " +
         std::to_string(allocation.process) + ")";
}

std::optional<int> SoftMemory::GpuOf(DeviceAddress address) const {
  const auto* const there = At(address);
  if (there == nullptr) return std::nullopt;
  return there->second.allocation->gpu;
}

uint8_t* SoftMemory::Find(int process, DeviceAddress address, size_t bytes, std::string& why) {
  const auto* const there = At(address);
  if (there == nullptr) {
    why = "nothing is there";
    return nullptr;
  }
  const Mapping& mapping = there->second;
  const size_t offset = address - there->first;
  if (offset > mapping.bytes || bytes > mapping.bytes - offset) {
    why = std::to_string(offset + bytes - mapping.bytes) + " bytes past the end of " +
          NameOf(mapping);
  } else if (mapping.process != process) {
    why = "not reachable: " + NameOf(mapping) + " as process " + std::to_string(mapping.process) +
          " sees it";
  } else if (mapping.allocation->freed) {
    why = NameOf(mapping) + " was freed";
  } else if (mapping.unmapped) {
    why = NameOf(mapping) + " was unmapped";
  } else {
    return mapping.allocation->bytes.data() + offset;
  }
  return nullptr;
}

// The texts of the software engine: why nothing can run, and which operations were wrong.
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
