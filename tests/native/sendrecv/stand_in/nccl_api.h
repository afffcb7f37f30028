// SPDX-License-Identifier: Apache-2.0
//
// Macros and helpers for the functions of the NCCL stand-in.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_API_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_API_H_

#include <atomic>
#include <memory>

#include "sendrecv/stand_in/nccl_comm.h"
#include "sendrecv/stand_in/soft_nccl.h"

// Defines what a function does. nccl_entries.cc defines its two public names, which trace each
// call.
#define SOFT_NCCL(name, parameters) ncclResult_t acts::name parameters

#define SOFT_NCCL_ENTER() \
  const Spared spared;    \
  if (Refuses(__func__)) return Fail(kNcclSystemError, "SOFT_NCCL_REFUSE asked for it")

namespace nccltune::soft {

namespace acts {
#define SOFT_NCCL_ACT(name, parameters, arguments) ncclResult_t name parameters;
#define SOFT_NCCL_OTHER_ACT(type, name, parameters, arguments) type name parameters;
SOFT_NCCL_FUNCTIONS(SOFT_NCCL_ACT)
SOFT_NCCL_OTHER_FUNCTIONS(SOFT_NCCL_OTHER_ACT)
#undef SOFT_NCCL_ACT
#undef SOFT_NCCL_OTHER_ACT
}  // namespace acts

inline CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// While it lives, SOFT_CUDA_REFUSE ignores the calls of this thread, because they are the NCCL
// stand-in's own.
class Spared {
 public:
  Spared() { softCudaSpare(1); }
  ~Spared() { softCudaSpare(-1); }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;
};

// Returns whether SOFT_NCCL_REFUSE selects this call. Its names have no prefix p.
bool Refuses(const char* function);

// Operators and registrations that were not released.
inline std::atomic<long> live_objects{0};

// Returns null if the handle is unknown, not ready yet or already ended.
std::shared_ptr<Comm> ReadyComm(const ncclComm* handle);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_API_H_
