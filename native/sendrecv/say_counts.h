// SPDX-License-Identifier: Apache-2.0
//
// How the messages of this process went, told to the user.
#ifndef NCCLTUNE_SENDRECV_SAY_COUNTS_H_
#define NCCLTUNE_SENDRECV_SAY_COUNTS_H_

#include <string>

namespace nccltune::sendrecv {

// To the file of NCCLTUNE_SENDRECV_STATS, else to standard error; with these lines behind.
void SayCounts(const std::string& more);

// Handles the signal of NCCLTUNE_SENDRECV_SIGNAL, if there is one and nobody handles it.
void SayCountsAtSignal();
// It has come since this was last asked.
bool CountsAreAsked();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SAY_COUNTS_H_
