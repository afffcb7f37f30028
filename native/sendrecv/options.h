// SPDX-License-Identifier: Apache-2.0
//
// Reads the library's settings (common/settings.h) from the environment.
#ifndef NCCLTUNE_SENDRECV_OPTIONS_H_
#define NCCLTUNE_SENDRECV_OPTIONS_H_

#include <string>

#include "sendrecv/communicator.h"
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

// Returns the options of this process. An invalid value is reported as a warning, and the default
// of the setting is used.
SendRecvOptions ReadOptions(InterposeMode mode);

// Sets how streams wait with the connections that CUDA has got. Returns why NCCL must carry
// everything, or an empty text.
std::string AdaptToConnections(SendRecvOptions* options);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_OPTIONS_H_
