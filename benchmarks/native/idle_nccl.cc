// SPDX-License-Identifier: Apache-2.0
//
// An NCCL that does nothing, so that what stands before it is all that is measured.
#include "sendrecv/stand_in/soft_nccl.h"

namespace nccltune::soft {

struct ncclComm {};

extern "C" {

SOFT_EXPORT ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int /*ranks*/, ncclUniqueId /*id*/,
                                          int /*rank*/) {
  static ncclComm made;
  *comm = &made;
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclCommUserRank(ncclComm_t /*comm*/, int* rank) {
  *rank = 0;
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclGroupStart() { return kNcclSuccess; }
SOFT_EXPORT ncclResult_t ncclGroupEnd() { return kNcclSuccess; }

SOFT_EXPORT ncclResult_t ncclSend(const void* /*from*/, size_t /*count*/, ncclDataType_t /*type*/,
                                  int /*peer*/, ncclComm_t /*comm*/, CUstream /*stream*/) {
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclRecv(void* /*to*/, size_t /*count*/, ncclDataType_t /*type*/,
                                  int /*peer*/, ncclComm_t /*comm*/, CUstream /*stream*/) {
  return kNcclSuccess;
}

}  // extern "C"

}  // namespace nccltune::soft
