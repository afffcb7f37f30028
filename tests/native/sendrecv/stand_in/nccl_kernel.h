// SPDX-License-Identifier: Apache-2.0
//
// The work of a group for one communicator of the NCCL stand-in, in one stream.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_

#include <cstddef>
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

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_KERNEL_H_
