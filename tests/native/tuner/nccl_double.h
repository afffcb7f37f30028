// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_TUNER_NCCL_DOUBLE_H_
#define NCCLTUNE_TESTS_TUNER_NCCL_DOUBLE_H_

namespace nccltune::tuner {

// The code (22809) that ncclGetVersion reports from now on; 0: it fails, as if there were no NCCL.
void SetNcclVersion(int code);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TESTS_TUNER_NCCL_DOUBLE_H_
