// SPDX-License-Identifier: Apache-2.0
//
// Logs how many messages of this process took each route.
#ifndef NCCLTUNE_SENDRECV_LOG_COUNTS_H_
#define NCCLTUNE_SENDRECV_LOG_COUNTS_H_

#include <string>

namespace nccltune::sendrecv {

// Writes to the file of NCCLTUNE_SENDRECV_STATS, or to standard error. The lines of `more` follow.
void LogCounts(const std::string& more);

// Handles the signal of NCCLTUNE_SENDRECV_SIGNAL, unless it is `none` or the program handles it.
void LogCountsAtSignal();
// Returns whether the signal arrived since the last call.
bool TakeCountsSignal();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LOG_COUNTS_H_
