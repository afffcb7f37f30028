// SPDX-License-Identifier: Apache-2.0
//
// The work of a group for one communicator of the NCCL stand-in, in one stream.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "sendrecv/stand_in/nccl_comm.h"
#include "sendrecv/stand_in/soft_nccl.h"

namespace nccltune::soft {

enum class TaskKind { kSend, kReceive, kAllReduce, kBroadcast };

struct Task {
  TaskKind kind = TaskKind::kSend;
  std::shared_ptr<Comm> comm;
  CUstream stream = nullptr;
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
  size_t bytes = 0;
  ncclDataType_t type = 0;
  int peer = 0;  // the peer or the root
};

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
