// SPDX-License-Identifier: Apache-2.0
// The work that is enqueued on the GPUs of a software machine, and what of it may run next. Time is
// counted in steps, so that the same random numbers give the same run.
#pragma once

#include "sendrecv/cuda/driver.h"
#include "standard.h"

namespace nccltune::sendrecv {

// GPU memory in software: real bytes at invented addresses. Each GPU belongs to a process of its
// own, which can access what it allocated and what it imported. Access to other memory is detected.

inline std::string Hex(DeviceAddress address) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, address);
  return text.data();
}

// The least distance between two allocations. An access past the end never reaches another one.
inline constexpr DeviceAddress kGap = DeviceAddress{2} << 20;

inline constexpr uint8_t kFresh = 0xEE;

// Not thread-safe.
class SoftMemory {
 public:
  // Allocates memory of the GPU, filled with 0xEE.
  DeviceAddress Allocate(size_t gpu, size_t bytes) {
    return Add(gpu, std::make_shared<Allocation>(
                        Allocation{.gpu = gpu, .bytes = std::vector<uint8_t>(bytes, kFresh)}));
  }
  // Maps memory of another GPU into the GPU's process, at another address, like IPC.
  DeviceAddress Import(size_t gpu, DeviceAddress address) {
    const auto* const there = At(address);
    return Add(gpu, there->second.allocation) + (address - there->first);
  }

  // Returns the GPU of the memory, or nothing if nothing is there.
  std::optional<size_t> GpuOf(DeviceAddress address) const {
    const auto* const there = At(address);
    if (there == nullptr) return std::nullopt;
    return there->second.allocation->gpu;
  }
  // Returns null if the GPU's process cannot access all of these bytes, with the reason in `why`.
  uint8_t* Find(size_t gpu, DeviceAddress address, size_t bytes, std::string& why) {
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

 private:
  struct Allocation {
    size_t gpu = 0;
    std::vector<uint8_t> bytes;
  };
  struct Mapping {
    size_t gpu = 0;  // of the process that sees it
    std::shared_ptr<Allocation> allocation;
  };

  // Returns the last mapping that starts at or before the address; null: none.
  const std::pair<const DeviceAddress, Mapping>* At(DeviceAddress address) const {
    const auto after = mappings_.upper_bound(address);
    return after == mappings_.begin() ? nullptr : &*std::prev(after);
  }
  DeviceAddress Add(size_t gpu, std::shared_ptr<Allocation> allocation) {
    const DeviceAddress at = next_;
    next_ += (allocation->bytes.size() + kGap - 1) / kGap * kGap + kGap;
    mappings_[at] = {.gpu = gpu, .allocation = std::move(allocation)};
    return at;
  }

  std::map<DeviceAddress, Mapping> mappings_;  // by start address; they do not overlap
  DeviceAddress next_ = 0x7000'0000'0000;
};

using Random = std::mt19937_64;

// The result of one Record, shared by those that wait for it.
struct Mark {
  uint64_t stream = 0;
  bool done = false;
};

namespace work {

struct Copy {
  DeviceAddress to = 0;
  DeviceAddress from = 0;
  size_t bytes = 0;
  // Drawn when the copy starts: the number of pieces, the first one, and whether they go backwards.
  size_t pieces = 0;
  size_t first = 0;
  bool backwards = false;
  size_t moved = 0;  // number of pieces copied
};
struct WriteValue {
  Flag* flag = nullptr;
  uint32_t value = 0;
};
struct WaitValue {
  const Flag* flag = nullptr;
  uint32_t value = 0;
};
struct Record {
  std::shared_ptr<Mark> mark;
};
struct WaitEvent {
  std::shared_ptr<const Mark> mark;
};
struct Kernel {
  std::function<void()> body;
  std::function<bool()> until;
  // Null, or called when the kernel begins.
  std::function<void()> start = nullptr;
  // Null, or returns the step at which `until` returns true in any case; kNever: not known yet.
  std::function<uint64_t()> wake = nullptr;
};
inline constexpr uint64_t kNever = UINT64_MAX;

}  // namespace work

// namespace work

using Work = std::variant<work::Copy, work::WriteValue, work::WaitValue, work::Record,
                          work::WaitEvent, work::Kernel>;

inline constexpr uint64_t kUndrawn = std::numeric_limits<uint64_t>::max();

inline bool Satisfied(const Work& work) {
  if (const auto* value = std::get_if<work::WaitValue>(&work)) {
    return Reached(value->flag->load(std::memory_order_acquire), value->value);
  }
  if (const auto* event = std::get_if<work::WaitEvent>(&work)) return event->mark->done;
  return true;
}

inline constexpr size_t kMostPieces = 6;

// Not thread-safe.
class SoftEngine {
 public:
  // The longest delay of an operation, in steps, is below 2 to the power of `delay_bits`. With
  // `one_connection` all streams of a GPU share one: kernels, waits for values and for events, and
  // copies within the GPU start in the order of their calls. So do pushes and pulls, each kind for
  // itself. A write for which the stream's last copy must be complete is behind that copy.
  SoftEngine(bool one_connection, unsigned delay_bits)
      : one_connection_(one_connection), delay_bits_(delay_bits) {}

  // Adds a GPU and returns its number.
  size_t NewGpu() {
    Gpu& gpu = gpus_.emplace_back();
    if (one_connection_) {
      gpu = {.shared = NewQueue(), .pushes = NewQueue(), .pulls = NewQueue(), .copy_engine = {}};
    }
    return gpus_.size() - 1;
  }
  // Streams are numbered from 1.
  uint64_t NewStream(size_t gpu) {
    StreamState& stream = streams_.emplace_back();
    stream.number = streams_.size();
    stream.gpu = gpu;
    stream.queue = stream.last_queue = one_connection_ ? gpus_[gpu].shared : NewQueue();
    if (one_connection_) stream.records = NewQueue();
    return stream.number;
  }
  bool HasStream(size_t gpu, uint64_t stream) const {
    return stream > 0 && stream <= streams_.size() && streams_[stream - 1].gpu == gpu;
  }
  void Enqueue(uint64_t stream, Work work) {
    StreamState& state = streams_[stream - 1];
    ++state.pending;
    ++pending_;
    Queue* const queue = QueueFor(state, work);
    if (!std::holds_alternative<work::Record>(work)) state.last_queue = queue;
    if (queue->operations.empty()) queue->due = kUndrawn;
    queue->operations.push_back(
        {.stream = &state, .work = std::move(work), .sequence = ++state.enqueued});
  }
  bool Idle(uint64_t stream) const { return streams_[stream - 1].pending == 0; }
  bool Idle() const { return pending_ == 0; }

  // A kernel's body. The caller runs it and reports that it has ended.
  struct Body {
    uint64_t stream = 0;
    std::function<void()> run;
  };
  // Makes one step of a random operation. Returns false if none can run. If the step is a kernel,
  // its body is returned in `body`.
  bool Step(Random& random, Body& body) {
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
  void Finish(const Body& body) {
    StreamState& stream = streams_[body.stream - 1];
    stream.in_body = false;
    --bodies_;
    stream.running.reset();
    End(stream);
  }
  // Returns whether a body is running or an operation can run.
  bool Moves() const {
    if (bodies_ > 0) return true;
    // A kernel that waits may write what another one waits for that was asked before it. So ask all
    // of them twice.
    for (size_t turn = 0; turn < 2 * actors(); ++turn) {
      if (CanMove(turn % actors())) return true;
    }
    return NextWake() != work::kNever;
  }
  // Returns what each stream with pending work waits for, if no operation can run.
  std::vector<std::string> Blocked() const {
    std::vector<std::string> blocked;
    if (Moves()) return blocked;
    for (const StreamState& stream : streams_) {
      if (stream.pending > 0) blocked.push_back(Reason(stream));
    }
    return blocked;
  }

  SoftMemory& memory() { return memory_; }
  // The time in steps.
  uint64_t now() const { return now_; }
  std::vector<std::string>& errors() { return errors_; }
  // Sets a name for a stream, for use in texts.
  void Name(uint64_t stream, std::string name) { streams_[stream - 1].name = std::move(name); }

 private:
  struct StreamState;
  struct Operation {
    StreamState* stream = nullptr;
    Work work;
    uint64_t sequence = 0;  // in the stream
  };
  // A hardware queue. Operations start in order; one that must wait blocks those after it.
  struct Queue {
    std::deque<Operation> operations;
    uint64_t due = 0;
  };
  struct Gpu {
    // With one connection: the queue of all streams, and those of the copy engines.
    Queue* shared = nullptr;
    Queue* pushes = nullptr;
    Queue* pulls = nullptr;
    // The streams that use its copy engine, in order. The engine stays with a stream while that
    // stream's next operation is another copy, as on a real GPU
    // (benchmarks/results/copy-engine-facts.md).
    std::deque<StreamState*> copy_engine;
  };
  struct StreamState {
    uint64_t number = 0;
    size_t gpu = 0;
    std::string name;
    Queue* queue = nullptr;
    Queue* last_queue = nullptr;  // of the last operation
    Queue* records = nullptr;     // with one connection: its events, which block nothing
    uint64_t enqueued = 0;
    uint64_t finished = 0;
    std::optional<Work> running;  // a copy or a kernel that has started
    uint64_t due = 0;
    size_t pending = 0;
    bool in_body = false;
  };

  Queue* NewQueue() { return &queues_.emplace_back(); }
  Queue* QueueFor(const StreamState& stream, const Work& work) const {
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
  bool PassTime(Random& random) {
    const uint64_t next = NextWake();
    if (next == work::kNever) return Moves();
    now_ = random() % 8 == 0 ? std::max(now_, next) : now_ + 1;
    return true;
  }
  uint64_t NextWake() const {
    uint64_t next = work::kNever;
    for (const StreamState& stream : streams_) {
      if (!stream.running || stream.in_body) continue;
      const auto* kernel = std::get_if<work::Kernel>(&*stream.running);
      if (kernel != nullptr && kernel->wake) next = std::min(next, kernel->wake());
    }
    return next;
  }
  bool CanStart(const Queue& queue) const {
    if (queue.operations.empty()) return false;
    const Operation& front = queue.operations.front();
    return !front.stream->running && front.stream->finished + 1 == front.sequence &&
           Satisfied(front.work);
  }
  bool CanGoOn(const StreamState& stream) const {
    if (!stream.running || stream.in_body) return false;
    if (const auto* kernel = std::get_if<work::Kernel>(&*stream.running)) {
      return !kernel->until || kernel->until();
    }
    return gpus_[stream.gpu].copy_engine.front() == &stream;
  }
  // `actor`: an index over all queues and then all streams.
  bool CanMove(size_t actor) const {
    return actor < queues_.size() ? CanStart(queues_[actor])
                                  : CanGoOn(streams_[actor - queues_.size()]);
  }
  size_t actors() const { return queues_.size() + streams_.size(); }
  uint64_t& Due(size_t actor) {
    return actor < queues_.size() ? queues_[actor].due : streams_[actor - queues_.size()].due;
  }
  std::optional<size_t> Choose(Random& random) {
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
  uint64_t Delay(Random& random) const {
    const uint64_t drawn = random();
    if (delay_bits_ == 0 || (drawn & 1) == 0) return 0;
    const uint64_t bits = 1 + (drawn >> 1) % 64 % delay_bits_;
    return (drawn >> 8) & ((uint64_t{1} << bits) - 1);
  }

  void Start(Queue& queue, Random& random) {
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
  void GoOn(StreamState& stream, Random& random, Body& body) {
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
    if (!one_connection_ && !queue.operations.empty() &&
        queue.operations.front().stream == &stream) {
      if (const auto* next = std::get_if<work::Copy>(&queue.operations.front().work)) {
        StartCopy(stream, *next, random, true);
        queue.operations.pop_front();
        queue.due = kUndrawn;
      }
    }
    End(stream);
  }
  void StartCopy(StreamState& stream, work::Copy copy, Random& random, bool first) {
    copy.pieces =
        std::clamp<size_t>(random() % kMostPieces + 1, 1, std::max(copy.bytes, size_t{1}));
    copy.first = random() % copy.pieces;
    copy.backwards = random() % 2 == 0;
    auto& engine = gpus_[stream.gpu].copy_engine;
    engine.insert(first ? engine.begin() : engine.end(), &stream);
    stream.due = kUndrawn;
    stream.running = copy;
  }
  // Copies one piece. Returns whether it was the last.
  bool MovePiece(const StreamState& stream, work::Copy& copy) {
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
  uint8_t* FindEnd(const StreamState& stream, const work::Copy& copy, bool to) {
    std::string why;
    const DeviceAddress address = to ? copy.to : copy.from;
    uint8_t* const found = memory_.Find(stream.gpu, address, copy.bytes, why);
    if (found == nullptr) {
      errors_.push_back(TextOf(stream) + ": copy of " + std::to_string(copy.bytes) +
                        " bytes from " + Hex(copy.from) + " to " + Hex(copy.to) + ", " +
                        (to ? "destination" : "source") + ": " + why);
    }
    return found;
  }
  void End(StreamState& stream) {
    ++stream.finished;
    --stream.pending;
    --pending_;
  }
  std::string Reason(const StreamState& stream) const {
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
  static std::string TextOf(const StreamState& stream) {
    return "GPU " + std::to_string(stream.gpu) + ", stream " + std::to_string(stream.number) +
           (stream.name.empty() ? "" : " (" + stream.name + ")");
  }

  const bool one_connection_;
  const unsigned delay_bits_;
  uint64_t now_ = 0;
  size_t pending_ = 0;
  size_t bodies_ = 0;
  // Their elements keep their addresses.
  std::deque<Gpu> gpus_;
  std::deque<Queue> queues_;
  std::deque<StreamState> streams_;
  SoftMemory memory_;
  std::vector<std::string> errors_;
};

}  // namespace nccltune::sendrecv
