// SPDX-License-Identifier: Apache-2.0
// What an operator sees and does while a process runs: the counts of messages by route, and the
// switch with which NCCL carries all later messages.
#pragma once

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

// Logs the counters at level INFO when a communicator of this rank ends.
void LogRoutes(int rank);

// Writes the counters to a file in the folder that NCCLTUNE_SENDRECV_METRICS names, at every 50th
// call. RemoveMetrics removes the file.
void WriteMetrics();
void RemoveMetrics();

// Looks for the file that NCCLTUNE_SENDRECV_OFF_FILE names.
void CheckKillSwitch();
// Returns whether the file was there at the last check. Then this rank leaves its messages to NCCL,
// except those that a peer has decided before.
bool IsSwitchedOff();

}  // namespace nccltune::sendrecv
