// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/hooks/symbols.h"

#include "sendrecv/hooks/nccl_api.h"

namespace nccltune::sendrecv {
namespace {

// The layout of ncclTeam_t.
struct Team {
  int ranks;
  int rank;
  int stride;
};

// The substitutes take no parameters, although callers pass some. That is safe, because in C's
// calling conventions the caller removes the arguments.
nccl::Result InvalidUsage() { return abi::kInvalidUsage; }
nccl::Result SystemError() { return abi::kSystemError; }
const char* NotInThisNcclText() { return "nccltune: this NCCL has no such function"; }
const char* NoNcclText() { return "nccltune: no NCCL was found"; }
int NoNumber() { return 0; }
Team NoTeam() { return Team{.ranks = 0, .rank = 0, .stride = 0}; }
void Nothing() {}

void* Of(Returns returns, nccl::Result (*result)(), const char* (*text)()) {
  switch (returns) {
    case Returns::kResult:
      return reinterpret_cast<void*>(result);
    case Returns::kText:
      return reinterpret_cast<void*>(text);
    case Returns::kNumber:
      return reinterpret_cast<void*>(&NoNumber);
    case Returns::kTeam:
      return reinterpret_cast<void*>(&NoTeam);
    case Returns::kNothing:
      break;
  }
  return reinterpret_cast<void*>(&Nothing);
}

}  // namespace

void* SubstituteForMissing(Returns returns) {
  return Of(returns, &InvalidUsage, &NotInThisNcclText);
}

void* SubstituteWithoutNccl(Returns returns) { return Of(returns, &SystemError, &NoNcclText); }

}  // namespace nccltune::sendrecv
