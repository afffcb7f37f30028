// SPDX-License-Identifier: Apache-2.0
//
// What is enqueued on the GPUs of a machine in software, and what of it may run next. Time is
// counted in steps, so that a program runs again as it ran from the same random numbers.
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

#include "sendrecv/driver.h"
#include "sendrecv/soft_memory.h"

namespace nccltune::sendrecv {

using Random = std::mt19937_64;

// One Record, for those that wait for it.
struct Mark {
  uint64_t stream = 0;
  bool done = false;
};

namespace work {

struct Copy {
  DeviceAddress to = 0;
  DeviceAddress from = 0;
  size_t bytes = 0;
  // Drawn when it starts: pieces, which is first, and whether they go backwards.
  size_t pieces = 0;
  size_t first = 0;
  bool backwards = false;
  size_t moved = 0;  // pieces
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
};

}  // namespace work

using Work = std::variant<work::Copy, work::WriteValue, work::WaitValue, work::Record,
                          work::WaitEvent, work::Kernel>;

// A stream that cannot go on.
struct Waiting {
  int gpu = 0;
  Stream stream = nullptr;
  // Null where it waits for something else than a value.
  const Flag* flag = nullptr;
  uint32_t value = 0;
  std::string what;
};

std::ostream& operator<<(std::ostream& out, const Waiting& waiting);

// Not for several threads.
class SoftEngine {
 public:
  // The longest delay of an operation, in steps, is below 2 to the power of `delay_bits`.
  SoftEngine(int gpus, unsigned delay_bits);

  // A GPU as a process sees it, with that many hardware queues; 0: one for each stream.
  void NewContext(int process, int gpu, size_t hardware_queues);

  // `context`: how many were made before it. A stream's number is never given again.
  uint64_t NewStream(size_t context);
  // What is in it still runs. False: there is none.
  bool DeleteStream(uint64_t stream);
  // Not deleted, and of that context.
  bool HasStream(size_t context, uint64_t stream) const;
  void Enqueue(uint64_t stream, Work work);
  bool Idle(uint64_t stream) const;
  bool Idle() const { return pending_ == 0; }
  // Those that are not deleted, or have something to do.
  size_t streams() const { return streams_.size(); }

  // What a process enqueued never runs, and its streams are gone; a kernel's body ends by itself.
  void Kill(int process);

  // A kernel's body, for the caller to run and then to tell.
  struct Body {
    uint64_t stream = 0;
    std::function<void()> run;
  };
  // One step of one operation, by chance. False: none can run. It may be a kernel's, in `body`.
  bool Step(Random& random, Body& body);
  void Finish(const Body& body);
  // A body runs, or an operation can run.
  bool Moves() const;
  // All streams that have something to do, where none can run.
  std::vector<Waiting> Blocked() const;

  SoftMemory& memory() { return memory_; }
  std::vector<std::string>& errors() { return errors_; }
  // For texts: of a stream or a flag.
  void Name(const void* what, std::string name) { names_[what] = std::move(name); }

 private:
  struct StreamState;
  struct Operation {
    StreamState* stream = nullptr;
    Work work;
  };
  // Operations are started in order; one that waits is not started until it need not.
  struct Queue {
    std::deque<Operation> operations;
    uint64_t due = 0;
  };
  struct Context {
    int process = 0;
    int gpu = 0;
    std::vector<std::shared_ptr<Queue>> queues;  // none: each stream has its own
    size_t next_queue = 0;
  };
  struct StreamState {
    uint64_t number = 0;
    size_t context = 0;
    std::shared_ptr<Queue> queue;
    std::optional<Work> running;  // a copy or a kernel that was started
    uint64_t due = 0;
    size_t pending = 0;
    bool in_body = false;
    bool deleted = false;
  };

  bool CanStart(const Queue& queue) const;
  bool CanGoOn(const StreamState& stream) const;
  // Index over all queues and then all streams; those that can move.
  bool CanMove(size_t actor) const;
  size_t actors() const { return queues_.size() + streams_.size(); }
  uint64_t& Due(size_t actor);
  std::optional<size_t> Choose(Random& random);
  uint64_t Delay(Random& random) const;

  void Start(Queue& queue, Random& random);
  void GoOn(StreamState& stream, Random& random, Body& body);
  void StartCopy(StreamState& stream, work::Copy copy, Random& random, bool first);
  // Moves one piece; true: that was all.
  bool MovePiece(const StreamState& stream, work::Copy& copy);
  uint8_t* FindEnd(const StreamState& stream, const work::Copy& copy, bool to);
  void End(StreamState& stream);
  void Forget(const StreamState& stream);
  // In soft_reasons.cc.
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
  // For each GPU the streams whose copies its copy engine has, in order. It stays with a stream as
  // long as the next of this is another copy, as a GPU's does
  // (benchmarks/results/copy-engine-facts.md).
  std::vector<std::deque<StreamState*>> copy_engines_;
  SoftMemory memory_;
  std::vector<std::string> errors_;
  std::map<const void*, std::string> names_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_ENGINE_H_
