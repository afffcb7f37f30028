// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_TUNER_NCCL_DOUBLE_H_
#define NCCLTUNE_TESTS_TUNER_NCCL_DOUBLE_H_

namespace nccltune::tuner {

// Sets the code that ncclGetVersion returns, such as 22809. 0 makes it fail, as if there were no
// NCCL.
void SetNcclVersion(int code);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TESTS_TUNER_NCCL_DOUBLE_H_
