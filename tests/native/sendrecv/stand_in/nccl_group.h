// SPDX-License-Identifier: Apache-2.0
//
// Groups of the NCCL stand-in: what is called between start and end is done at the outermost end.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_GROUP_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_GROUP_H_

#include <functional>
#include <memory>

#include "sendrecv/stand_in/nccl_comm.h"
#include "sendrecv/stand_in/nccl_kernel.h"

namespace nccltune::soft {

void StartGroup();
ncclResult_t EndGroup();

// An operation, in a group of its own where there is none.
ncclResult_t AddTask(Task task);

// A communicator on its way: `join` waits for other ranks. It runs at once, at the end of the
// group, or where the one that is `asked` for it, which is its parent if it has one, is not
// blocking in a thread of its own.
ncclResult_t AddJoin(std::shared_ptr<Comm> asked, std::function<ncclResult_t()> join);

// The calling thread is in a group, which is to fail.
ncclResult_t FailGroup(ncclResult_t result);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_GROUP_H_
