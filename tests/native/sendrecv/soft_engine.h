// SPDX-License-Identifier: Apache-2.0
//
// The work that is enqueued on the GPUs of a software machine, and what of it may run next. Time is
// counted in steps, so that the same random numbers give the same run.
#ifndef NCCLTUNE_TESTS_SENDRECV_SOFT_ENGINE_H_
#define NCCLTUNE_TESTS_SENDRECV_SOFT_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sendrecv/cuda/driver.h"

namespace nccltune::sendrecv {

// GPU memory in software: real bytes at invented addresses. Access to another process's memory or
// to freed memory is detected.

std::string Hex(DeviceAddress address);

// Not thread-safe. A process is a number; it can access what it allocated and what it imported.
class SoftMemory {
 public:
  // Allocates on `gpu` for the process, filled with 0xEE. Returns 0 for 0 bytes.
  DeviceAddress Allocate(int process, int gpu, size_t bytes);
  // Allocates at an address that the process has freed, as allocators may. Returns false if not all
  // of it is free.
  bool AllocateAt(int process, int gpu, DeviceAddress at, size_t bytes);
  // Frees the memory at once, also if operations use it. Imports of it become invalid. Returns
  // false if no allocation of the process starts there.
  bool Free(int process, DeviceAddress address);

  // Maps the memory at `address` of `owner` into `process`, at another address, like IPC. Returns 0
  // if there is no memory.
  DeviceAddress Import(int process, int owner, DeviceAddress address);
  bool Unmap(int process, DeviceAddress start);

  // Ends the process. Its memory stays for the processes that imported it.
  void Kill(int process);

  // Returns the GPU of the memory, or nothing if nothing is there.
  std::optional<int> GpuOf(DeviceAddress address) const;
  // Returns null if the process cannot access all of these bytes, with the reason in `why`.
  uint8_t* Find(int process, DeviceAddress address, size_t bytes, std::string& why);

 private:
  struct Allocation {
    int number = 0;
    int process = 0;
    int gpu = 0;
    std::vector<uint8_t> bytes;
    bool freed = false;
  };
  // Kept after it is freed, to describe late accesses.
  struct Mapping {
    int process = 0;
    size_t bytes = 0;
    bool imported = false;
    bool unmapped = false;
    std::shared_ptr<Allocation> allocation;
  };

  // Returns the last mapping that starts at or before the address; null: none.
  const std::pair<const DeviceAddress, Mapping>* At(DeviceAddress address) const;
  DeviceAddress NextAddress(size_t bytes);
  void Put(DeviceAddress at, int process, int gpu, size_t bytes);
  static std::string NameOf(const Mapping& mapping);

  std::map<DeviceAddress, Mapping> mappings_;  // by start address; they do not overlap
  DeviceAddress next_ = 0x7000'0000'0000;
  int allocations_ = 0;
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

// A stream that cannot continue.
struct Waiting {
  int gpu = 0;
  Stream stream = nullptr;
  // Null if it does not wait for a value.
  const Flag* flag = nullptr;
  uint32_t value = 0;
  std::string what;
};

std::ostream& operator<<(std::ostream& out, const Waiting& waiting);

// Not thread-safe.
class SoftEngine {
 public:
  // The longest delay of an operation, in steps, is below 2 to the power of `delay_bits`.
  SoftEngine(int gpus, unsigned delay_bits);

  // Adds a GPU as a process sees it, with this many hardware queues; 0: one for each stream.
  void NewContext(int process, int gpu, size_t hardware_queues);
  // Adds a GPU whose streams share one connection. Kernels, waits for values and for events, and
  // copies within the GPU start in the order of their calls. So do pushes and pulls, each kind for
  // itself. A write for which the stream's last copy must be complete is behind that copy.
  void NewSharedContext(int process, int gpu);

  // `context`: its index in order of creation. Stream numbers are never reused.
  uint64_t NewStream(size_t context);
  // Its pending operations still run. Returns false if there is no such stream.
  bool DeleteStream(uint64_t stream);
  // Returns whether the stream belongs to that context and is not deleted.
  bool HasStream(size_t context, uint64_t stream) const;
  void Enqueue(uint64_t stream, Work work);
  bool Idle(uint64_t stream) const;
  bool Idle() const { return pending_ == 0; }
  // Number of streams that are not deleted or have pending work.
  size_t streams() const { return streams_.size(); }

  // Ends a process: its enqueued work never runs and its streams are removed. A kernel body that is
  // running ends by itself.
  void Kill(int process);

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
  // Returns all streams with pending work if no operation can run.
  std::vector<Waiting> Blocked() const;

  SoftMemory& memory() { return memory_; }
  // The time in steps.
  uint64_t now() const { return now_; }
  std::vector<std::string>& errors() { return errors_; }
  // Sets a name for a stream or a flag, for use in texts.
  void Name(const void* what, std::string name) { names_[what] = std::move(name); }

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
  struct Context {
    int process = 0;
    int gpu = 0;
    std::vector<std::shared_ptr<Queue>> queues;  // empty: each stream has its own
    size_t next_queue = 0;
    // With one connection: `queues` is one queue, and these are those of the copy engines.
    std::shared_ptr<Queue> pushes;
    std::shared_ptr<Queue> pulls;
  };
  struct StreamState {
    uint64_t number = 0;
    size_t context = 0;
    std::shared_ptr<Queue> queue;
    std::shared_ptr<Queue> last_queue;  // of the last operation
    std::shared_ptr<Queue> records;     // with one connection: its events, which block nothing
    uint64_t enqueued = 0;
    uint64_t finished = 0;
    std::optional<Work> running;  // a copy or a kernel that has started
    uint64_t due = 0;
    size_t pending = 0;
    bool in_body = false;
    bool deleted = false;
  };

  std::shared_ptr<Queue> QueueFor(const StreamState& stream, const Work& work) const;
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
  void Forget(const StreamState& stream);
  Waiting Reason(const StreamState& stream) const;
  std::string TextOf(const StreamState& stream) const;
  std::string CopyText(const StreamState& stream, const work::Copy& copy, bool to,
                       const std::string& why) const;

  unsigned delay_bits_;
  uint64_t now_ = 0;
  uint64_t numbers_ = 0;
  size_t pending_ = 0;
  size_t bodies_ = 0;
  std::vector<Context> contexts_;
  std::vector<std::shared_ptr<Queue>> queues_;
  std::vector<StreamState*> streams_;
  std::map<uint64_t, std::unique_ptr<StreamState>> by_number_;
  // For each GPU, the streams that use its copy engine, in order. The engine stays with a stream
  // while that stream's next operation is another copy, as on a real GPU
  // (benchmarks/results/copy-engine-facts.md).
  std::vector<std::deque<StreamState*>> copy_engines_;
  SoftMemory memory_;
  std::vector<std::string> errors_;
  std::map<const void*, std::string> names_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_ENGINE_H_
