// SPDX-License-Identifier: Apache-2.0
//
// Logs how many messages of this process took each route.
#ifndef NCCLTUNE_SENDRECV_LOG_COUNTS_H_
#define NCCLTUNE_SENDRECV_LOG_COUNTS_H_

#include <string>

namespace nccltune::sendrecv {

// Writes the counters and then the lines of `more` to the file that NCCLTUNE_SENDRECV_STATS names,
// or to standard error if the setting is empty or `-`.
void LogCounts(const std::string& more);

// Installs a handler for the signal that NCCLTUNE_SENDRECV_SIGNAL names. Does nothing if the
// setting is `none` or the program already handles the signal.
void LogCountsAtSignal();
// Returns whether the signal of NCCLTUNE_SENDRECV_SIGNAL has arrived since the last call.
bool TakeCountsSignal();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LOG_COUNTS_H_
