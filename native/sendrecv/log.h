// SPDX-License-Identifier: Apache-2.0
//
// Log lines on standard error. This library has no access to NCCL's logger.
#ifndef NCCLTUNE_SENDRECV_LOG_H_
#define NCCLTUNE_SENDRECV_LOG_H_

#include <string>

namespace nccltune::sendrecv {

// Logs a warning. Logs each text only once in a process.
void Warn(const std::string& text);
// Logs a message at level INFO, only with NCCL_DEBUG=INFO or TRACE.
void Info(const std::string& text);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LOG_H_
