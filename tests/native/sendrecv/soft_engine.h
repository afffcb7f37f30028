// SPDX-License-Identifier: Apache-2.0
// The work that is enqueued on the GPUs of a software machine, and what of it may run next. Time is
// counted in steps, so that the same random numbers give the same run.
#ifndef NCCLTUNE_TESTS_SENDRECV_SOFT_ENGINE_H_
#define NCCLTUNE_TESTS_SENDRECV_SOFT_ENGINE_H_

#include "sendrecv/cuda/driver.h"
#include "standard.h"

namespace nccltune::sendrecv {

// GPU memory in software: real bytes at invented addresses. Each GPU belongs to a process of its
// own, which can access what it allocated and what it imported. Access to other memory is detected.

std::string Hex(DeviceAddress address);

// Not thread-safe.
class SoftMemory {
 public:
  // Allocates memory of the GPU, filled with 0xEE.
  DeviceAddress Allocate(size_t gpu, size_t bytes);
  // Maps memory of another GPU into the GPU's process, at another address, like IPC.
  DeviceAddress Import(size_t gpu, DeviceAddress address);

  // Returns the GPU of the memory, or nothing if nothing is there.
  std::optional<size_t> GpuOf(DeviceAddress address) const;
  // Returns null if the GPU's process cannot access all of these bytes, with the reason in `why`.
  uint8_t* Find(size_t gpu, DeviceAddress address, size_t bytes, std::string& why);

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
  const std::pair<const DeviceAddress, Mapping>* At(DeviceAddress address) const;
  DeviceAddress Add(size_t gpu, std::shared_ptr<Allocation> allocation);

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

using Work = std::variant<work::Copy, work::WriteValue, work::WaitValue, work::Record,
                          work::WaitEvent, work::Kernel>;

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
  size_t NewGpu();
  // Streams are numbered from 1.
  uint64_t NewStream(size_t gpu);
  bool HasStream(size_t gpu, uint64_t stream) const;
  void Enqueue(uint64_t stream, Work work);
  bool Idle(uint64_t stream) const { return streams_[stream - 1].pending == 0; }
  bool Idle() const { return pending_ == 0; }

  // A kernel's body. The caller runs it and reports that it has ended.
  struct Body {
    uint64_t stream = 0;
    std::function<void()> run;
  };
  // Makes one step of a random operation. Returns false if none can run. If the step is a kernel,
  // its body is returned in `body`.
  bool Step(Random& random, Body& body);
  void Finish(const Body& body);
  // Returns whether a body is running or an operation can run.
  bool Moves() const;
  // Returns what each stream with pending work waits for, if no operation can run.
  std::vector<std::string> Blocked() const;

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
  Queue* QueueFor(const StreamState& stream, const Work& work) const;
  bool PassTime(Random& random);
  uint64_t NextWake() const;
  bool CanStart(const Queue& queue) const;
  bool CanGoOn(const StreamState& stream) const;
  // `actor`: an index over all queues and then all streams.
  bool CanMove(size_t actor) const;
  size_t actors() const { return queues_.size() + streams_.size(); }
  uint64_t& Due(size_t actor);
  std::optional<size_t> Choose(Random& random);
  uint64_t Delay(Random& random) const;

  void Start(Queue& queue, Random& random);
  void GoOn(StreamState& stream, Random& random, Body& body);
  void StartCopy(StreamState& stream, work::Copy copy, Random& random, bool first);
  // Copies one piece. Returns whether it was the last.
  bool MovePiece(const StreamState& stream, work::Copy& copy);
  uint8_t* FindEnd(const StreamState& stream, const work::Copy& copy, bool to);
  void End(StreamState& stream);
  std::string Reason(const StreamState& stream) const;
  static std::string TextOf(const StreamState& stream);

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

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_ENGINE_H_
