// SPDX-License-Identifier: Apache-2.0
//
// Groups of the NCCL stand-in. Their calls are carried out at the outermost end.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_GROUP_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_GROUP_H_

#include <functional>
#include <memory>

#include "sendrecv/stand_in/nccl_comm.h"
#include "sendrecv/stand_in/nccl_kernel.h"

namespace nccltune::soft {

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

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_GROUP_H_
