// SPDX-License-Identifier: Apache-2.0
//
// Lines for the user on standard error: the interposer has no logger of NCCL's.
#ifndef NCCLTUNE_SENDRECV_SAY_H_
#define NCCLTUNE_SENDRECV_SAY_H_

#include <string>

namespace nccltune::sendrecv {

// Once a process for each text.
void Warn(const std::string& text);
// With NCCL_DEBUG=INFO or TRACE alone.
void Info(const std::string& text);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SAY_H_
