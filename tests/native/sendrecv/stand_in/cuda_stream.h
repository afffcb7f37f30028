// SPDX-License-Identifier: Apache-2.0
//
// Streams of the CUDA stand-in. A thread for each stream runs its operations in order, and sleeps
// when there are none.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_STREAM_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_STREAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sendrecv/stand_in/soft_cuda.h"

namespace nccltune::soft {

class SoftStream;
struct Context;
struct Graph;

// The position in a stream at which the mark was made.
struct Mark {
  std::shared_ptr<SoftStream> stream;  // null: nothing to wait for
  uint64_t sequence = 0;

  bool Done() const;
  void Wait() const;
};

struct Operation {
  std::vector<Mark> after;
  // Polled at the head of the queue; null: the operation may run at once.
  std::function<bool()> ready;
  // Null: the operation only waits.
  std::function<void()> run;
  // With one connection, the kind selects the queue. kKernel also stands for waits.
  enum class Kind : uint8_t { kKernel, kCopyIn, kCopyOut, kPush, kPull, kWrite, kRecord };
  Kind kind = Kind::kKernel;
};

// A hardware queue. Operations of its streams start in the order of the calls. An operation that
// waits at the head blocks all behind it. One that runs blocks only its own stream.
class Queue {
 private:
  friend class SoftStream;
  struct Entry {
    SoftStream* stream = nullptr;
    uint64_t sequence = 0;
    Operation operation;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
};

class SoftStream : public std::enable_shared_from_this<SoftStream> {
 public:
  SoftStream(Context& context, std::shared_ptr<Queue> queue, unsigned flags, uint64_t id);

  // For a stream that is not under capture. The caller orders the calls.
  Mark Push(Operation operation);
  // The caller holds the machine's lock.
  Mark Last();
  bool Done(uint64_t sequence);
  void Wait(uint64_t sequence);
  // Lets the thread end when all operations are done.
  void Retire();

  Context& context() const { return context_; }
  unsigned flags() const { return flags_; }
  uint64_t id() const { return id_; }

  // The graph if the stream is under capture; protected by the machine's lock.
  std::shared_ptr<Graph> graph;
  size_t lane = 0;
  bool green = false;  // of a green context; protected by the machine's lock
  // With one connection: parts of this stream in other queues, and the part (or null: this) of the
  // last operation; protected by the machine's lock.
  std::map<Queue*, std::shared_ptr<SoftStream>> parts;
  SoftStream* last_part = nullptr;

 private:
  Mark LastHere();
  void Serve();

  Context& context_;
  const std::shared_ptr<Queue> queue_;
  const unsigned flags_;
  const uint64_t id_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t pushed_ = 0;
  uint64_t done_ = 0;
  bool has_thread_ = false;
  std::atomic<bool> retired_{false};
};

// The captured operations, in the order of the calls. Lane 0 is the stream in which the capture
// began.
struct Graph {
  struct Node {
    size_t lane = 0;
    Operation operation;
    size_t records = 0;  // index of a mark in the graph, from 1
    size_t waits_for = 0;
  };
  std::vector<Node> nodes;
  std::vector<std::weak_ptr<SoftStream>> lanes;
  std::map<size_t, size_t> lane_of_mark;
  std::vector<bool> joined;  // by lane: lane 0 has waited for all of its operations
  size_t marks = 0;
  bool invalid = false;
  int mode = 0;
  std::thread::id thread;  // the thread that began the capture
};

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_STREAM_H_
