// SPDX-License-Identifier: Apache-2.0
//
// Streams of the CUDA stand-in: what is enqueued, in order, with a thread that does it. A thread
// with nothing to do sleeps.
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

// How far a stream had been told to go when the mark was made.
struct Mark {
  std::shared_ptr<SoftStream> stream;  // null: nothing
  uint64_t sequence = 0;

  bool Done() const;
  void Wait() const;
};

struct Operation {
  std::vector<Mark> after;
  // Asked again and again at the head of its queue; null: it may run.
  std::function<bool()> ready;
  // Null: nothing but waiting.
  std::function<void()> run;
};

// Streams that share one are started in the order of their calls: what waits at its head keeps all
// behind it waiting. What runs does not, but for its own stream.
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

  // Not under capture. Calls are ordered by the caller.
  Mark Push(Operation operation);
  Mark Last();
  bool Done(uint64_t sequence);
  void Wait(uint64_t sequence);
  // Its thread ends when all is done.
  void Retire();

  Context& context() const { return context_; }
  unsigned flags() const { return flags_; }
  uint64_t id() const { return id_; }

  // Under capture, with the machine's lock.
  std::shared_ptr<Graph> graph;
  size_t lane = 0;

 private:
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

// What was captured, in the order of the calls. Lane 0 is the stream that the capture began in.
struct Graph {
  struct Node {
    size_t lane = 0;
    Operation operation;
    size_t records = 0;  // a mark of the graph, counted from 1
    size_t waits_for = 0;
  };
  std::vector<Node> nodes;
  std::vector<std::weak_ptr<SoftStream>> lanes;
  std::map<size_t, size_t> lane_of_mark;
  std::vector<bool> joined;  // by lane: nothing since lane 0 waited for it
  size_t marks = 0;
  bool invalid = false;
  int mode = 0;
  std::thread::id thread;  // that began it
};

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_STREAM_H_
