// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/soft_engine.h"
#include "standard.h"

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

size_t SoftEngine::NewGpu() {
  Gpu& gpu = gpus_.emplace_back();
  if (one_connection_) {
    gpu = {.shared = NewQueue(), .pushes = NewQueue(), .pulls = NewQueue(), .copy_engine = {}};
  }
  return gpus_.size() - 1;
}

uint64_t SoftEngine::NewStream(size_t gpu) {
  StreamState& stream = streams_.emplace_back();
  stream.number = streams_.size();
  stream.gpu = gpu;
  stream.queue = stream.last_queue = one_connection_ ? gpus_[gpu].shared : NewQueue();
  if (one_connection_) stream.records = NewQueue();
  return stream.number;
}

bool SoftEngine::HasStream(size_t gpu, uint64_t stream) const {
  return stream > 0 && stream <= streams_.size() && streams_[stream - 1].gpu == gpu;
}

void SoftEngine::Enqueue(uint64_t stream, Work work) {
  StreamState& state = streams_[stream - 1];
  ++state.pending;
  ++pending_;
  Queue* const queue = QueueFor(state, work);
  if (!std::holds_alternative<work::Record>(work)) state.last_queue = queue;
  if (queue->operations.empty()) queue->due = kUndrawn;
  queue->operations.push_back(
      {.stream = &state, .work = std::move(work), .sequence = ++state.enqueued});
}

SoftEngine::Queue* SoftEngine::QueueFor(const StreamState& stream, const Work& work) const {
  if (!one_connection_) return stream.queue;
  const Gpu& gpu = gpus_[stream.gpu];
  if (const auto* copy = std::get_if<work::Copy>(&work)) {
    const auto far = [&](DeviceAddress address) {
      return memory_.GpuOf(address).value_or(stream.gpu) != stream.gpu;
    };
    if (far(copy->to)) return gpu.pushes;
    return far(copy->from) ? gpu.pulls : stream.queue;
  }
  if (std::holds_alternative<work::WriteValue>(work)) return stream.last_queue;
  return std::holds_alternative<work::Record>(work) ? stream.records : stream.queue;
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
  return gpus_[stream.gpu].copy_engine.front() == &stream;
}

bool SoftEngine::CanMove(size_t actor) const {
  return actor < queues_.size() ? CanStart(queues_[actor])
                                : CanGoOn(streams_[actor - queues_.size()]);
}

uint64_t& SoftEngine::Due(size_t actor) {
  return actor < queues_.size() ? queues_[actor].due : streams_[actor - queues_.size()].due;
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
  for (const StreamState& stream : streams_) {
    if (!stream.running || stream.in_body) continue;
    const auto* kernel = std::get_if<work::Kernel>(&*stream.running);
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
    Start(queues_[*actor], random);
  } else {
    GoOn(streams_[*actor - queues_.size()], random, body);
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
  auto& engine = gpus_[stream.gpu].copy_engine;
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
  gpus_[stream.gpu].copy_engine.pop_front();
  stream.running.reset();
  Queue& queue = *stream.queue;
  if (!one_connection_ && !queue.operations.empty() && queue.operations.front().stream == &stream) {
    if (const auto* next = std::get_if<work::Copy>(&queue.operations.front().work)) {
      StartCopy(stream, *next, random, true);
      queue.operations.pop_front();
      queue.due = kUndrawn;
    }
  }
  End(stream);
}

void SoftEngine::Finish(const Body& body) {
  StreamState& stream = streams_[body.stream - 1];
  stream.in_body = false;
  --bodies_;
  stream.running.reset();
  End(stream);
}

void SoftEngine::End(StreamState& stream) {
  ++stream.finished;
  --stream.pending;
  --pending_;
}

uint8_t* SoftEngine::FindEnd(const StreamState& stream, const work::Copy& copy, bool to) {
  std::string why;
  const DeviceAddress address = to ? copy.to : copy.from;
  uint8_t* const found = memory_.Find(stream.gpu, address, copy.bytes, why);
  if (found == nullptr) {
    errors_.push_back(TextOf(stream) + ": copy of " + std::to_string(copy.bytes) + " bytes from " +
                      Hex(copy.from) + " to " + Hex(copy.to) + ", " +
                      (to ? "destination" : "source") + ": " + why);
  }
  return found;
}

bool SoftEngine::MovePiece(const StreamState& stream, work::Copy& copy) {
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

DeviceAddress SoftMemory::Add(size_t gpu, std::shared_ptr<Allocation> allocation) {
  const DeviceAddress at = next_;
  next_ += (allocation->bytes.size() + kGap - 1) / kGap * kGap + kGap;
  mappings_[at] = {.gpu = gpu, .allocation = std::move(allocation)};
  return at;
}

DeviceAddress SoftMemory::Allocate(size_t gpu, size_t bytes) {
  return Add(gpu, std::make_shared<Allocation>(
                      Allocation{.gpu = gpu, .bytes = std::vector<uint8_t>(bytes, kFresh)}));
}

DeviceAddress SoftMemory::Import(size_t gpu, DeviceAddress address) {
  const auto* const there = At(address);
  return Add(gpu, there->second.allocation) + (address - there->first);
}

const std::pair<const DeviceAddress, SoftMemory::Mapping>* SoftMemory::At(
    DeviceAddress address) const {
  const auto after = mappings_.upper_bound(address);
  return after == mappings_.begin() ? nullptr : &*std::prev(after);
}

std::optional<size_t> SoftMemory::GpuOf(DeviceAddress address) const {
  const auto* const there = At(address);
  if (there == nullptr) return std::nullopt;
  return there->second.allocation->gpu;
}

uint8_t* SoftMemory::Find(size_t gpu, DeviceAddress address, size_t bytes, std::string& why) {
  const auto* const there = At(address);
  if (there == nullptr) {
    why = "nothing is there";
    return nullptr;
  }
  Allocation& allocation = *there->second.allocation;
  const size_t offset = address - there->first;
  if (offset > allocation.bytes.size() || bytes > allocation.bytes.size() - offset) {
    why = std::to_string(offset + bytes - allocation.bytes.size()) + " bytes past the end of " +
          std::to_string(allocation.bytes.size()) + " bytes of GPU " +
          std::to_string(allocation.gpu);
    return nullptr;
  }
  if (there->second.gpu != gpu) {
    why = "an address of the process of GPU " + std::to_string(there->second.gpu);
    return nullptr;
  }
  return allocation.bytes.data() + offset;
}

// The texts of the software engine: why nothing can run, and which operations were wrong.
std::string SoftEngine::TextOf(const StreamState& stream) {
  return "GPU " + std::to_string(stream.gpu) + ", stream " + std::to_string(stream.number) +
         (stream.name.empty() ? "" : " (" + stream.name + ")");
}

std::string SoftEngine::Reason(const StreamState& stream) const {
  const std::string text = TextOf(stream) + ": ";
  if (stream.running) return text + "a kernel waits";
  const auto queue = std::ranges::find_if(queues_, [&](const Queue& each) {
    return std::ranges::any_of(each.operations, [&](const Operation& operation) {
      return operation.stream == &stream && operation.sequence == stream.finished + 1;
    });
  });
  if (queue == queues_.end()) return text;
  const Operation& front = queue->operations.front();
  if (front.stream != &stream) return text + "is behind " + TextOf(*front.stream) + " in a queue";
  if (const auto* value = std::get_if<work::WaitValue>(&front.work)) {
    return text + "waits for a flag to reach " + std::to_string(value->value) + ", it is " +
           std::to_string(value->flag->load(std::memory_order_acquire));
  }
  if (const auto* event = std::get_if<work::WaitEvent>(&front.work)) {
    return text + "waits for an event of stream " + std::to_string(event->mark->stream);
  }
  return text;
}

std::vector<std::string> SoftEngine::Blocked() const {
  std::vector<std::string> blocked;
  if (Moves()) return blocked;
  for (const StreamState& stream : streams_) {
    if (stream.pending > 0) blocked.push_back(Reason(stream));
  }
  return blocked;
}

}  // namespace nccltune::sendrecv
