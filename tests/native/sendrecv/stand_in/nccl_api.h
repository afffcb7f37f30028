// SPDX-License-Identifier: Apache-2.0
//
// How the functions of the NCCL stand-in are written.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_API_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_API_H_

#include <memory>

#include "sendrecv/stand_in/nccl_comm.h"
#include "sendrecv/stand_in/soft_nccl.h"

// As in NCCL the name with a p is the function, and the plain one is weak.
#define SOFT_NCCL(name, parameters)                                                \
  extern "C" ncclResult_t name parameters __attribute__((weak, alias("p" #name))); \
  ncclResult_t p##name parameters

#define SOFT_NCCL_ENTER() \
  const Spared spared;    \
  if (Refuses(__func__)) return Fail(kNcclSystemError, "SOFT_NCCL_REFUSE asked for it")

namespace nccltune::soft {

// SOFT_CUDA_REFUSE is for others than this library.
class Spared {
 public:
  Spared() { softCudaSpare(1); }
  ~Spared() { softCudaSpare(-1); }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;
};

// SOFT_NCCL_REFUSE, with names without the p.
bool Refuses(const char* function);

// Null: no communicator, or one that is not ready, or is over.
std::shared_ptr<Comm> ReadyComm(const ncclComm* handle);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_API_H_
