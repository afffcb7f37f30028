// SPDX-License-Identifier: Apache-2.0
//
// The work of a group for one communicator of the NCCL stand-in, in one stream.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sendrecv/stand_in/nccl_comm.h"
#include "sendrecv/stand_in/soft_nccl.h"

namespace nccltune::soft {

enum class TaskKind { kSend, kReceive, kCollective };

// A piece of a rank's result: bytes from `from` on of the input of `source`, or of the reduction of
// all inputs.
struct Part {
  static constexpr int kReduced = -1;
  int source = kReduced;
  size_t from = 0;
  size_t to = 0;
  size_t bytes = 0;
};

inline constexpr int kAllRanks = -1;

struct Task {
  TaskKind kind = TaskKind::kSend;
  std::shared_ptr<Comm> comm = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
  size_t bytes = 0;
  ncclDataType_t type = 0;
  int peer = 0;  // collectives: the one rank whose input is used, or kAllRanks
  // Collectives. `bytes` is the size of each input.
  const char* name = "";
  size_t result_bytes = 0;
  std::vector<Part> parts = {};
  ncclRedOp_t op = kNcclSum;
  double scalar = 1;  // of an operator of the application

  bool is_collective() const { return kind == TaskKind::kCollective; }
};

// What the NCCL of the tests of nccltune-bench does in addition: all reductions, plugins, and
// faults. Without it, NCCL only adds, and only all-reduces and broadcasts move data.
class CommObserver {
 public:
  // `inputs`: those of a chunk, by rank. `at`: where in it the reduced bytes begin.
  using Inputs = std::vector<std::vector<uint8_t>>;

  virtual ~CommObserver() = default;
  // Called before a group is enqueued. Its error is that of the group.
  virtual ncclResult_t Launch(const std::vector<Task>& tasks, bool captured) = 0;
  // Called in the stream around each collective, and around all messages of a group. `last`: where
  // the last piece of the result begins; 0: none.
  virtual void Begin(size_t bytes) = 0;
  virtual void End(size_t bytes, CUdeviceptr last) = 0;
  virtual void Scale(const Task& task, std::vector<uint8_t>* input) = 0;
  virtual void Reduce(const Task& task, const Inputs& inputs, size_t at,
                      std::vector<uint8_t>* result) = 0;
  // Called when the communicator ends. Graphs may still run its kernels.
  virtual void Close() = 0;

  // Make an observer of a communicator, and read a scalar. Null in most tests.
  struct Makers {
    std::shared_ptr<CommObserver> (*observer)(Comm& comm) = nullptr;
    double (*scalar)(ncclDataType_t type, const void* scalar) = nullptr;
  };
  static Makers makers;
};

// The size that NCCL's tuner sees.
inline size_t TunedBytes(const Task& task) { return std::max(task.bytes, task.result_bytes); }
// The bytes that the messages of a group send.
size_t SentBytes(const std::vector<Task>& tasks);

struct Kernel {
  std::shared_ptr<Comm> comm;
  std::vector<Task> tasks;
  bool captured = false;  // runs whenever its graph runs
};

// Returns the bytes of one element; 0: unknown type.
size_t SizeOf(ncclDataType_t type);
bool CanAdd(ncclDataType_t type);

// Enqueues all tasks that a group has for one communicator.
ncclResult_t Launch(const std::shared_ptr<Comm>& comm, std::vector<Task> tasks);

// Groups of the NCCL stand-in. Their calls are carried out at the outermost end.

void StartGroup();
// `info`: see ncclGroupSimulateEnd.
ncclResult_t EndGroup(ncclSimInfo_t* info = nullptr);

// Adds an operation. Outside of a group it gets its own group.
ncclResult_t AddTask(Task task);

// Adds the creation of a communicator. When the group ends without a failure, `begin` is called, in
// the order of these calls. Then `join` waits for the other ranks. Outside of a group this happens
// at once. If `asked` is nonblocking, `join` runs in its own thread; `asked` is the parent, or the
// communicator itself if it has none.
ncclResult_t AddJoin(
    std::shared_ptr<Comm> asked, std::function<ncclResult_t()> join,
    std::function<void()> begin = [] {});

// Makes the calling thread's group fail, if it is in one.
ncclResult_t FailGroup(ncclResult_t result);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_
