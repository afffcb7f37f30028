// SPDX-License-Identifier: Apache-2.0
// Streams share CUDA's connections to a GPU, 8 by default. A stream that waits blocks other streams
// of its connection, also streams that it waits for, by way of a peer. So programs that work with
// NCCL would hang with few connections.
#pragma once

#include <cstddef>
#include <string>

#include "common/cuda_api.h"

namespace nccltune::sendrecv {

struct Connections {
  size_t count = 0;  // connections that CUDA has got for each GPU
  std::string why;   // why NCCL must carry everything; empty if copy engines may carry messages
};

// Returns the connections of this process. CUDA reads CUDA_DEVICE_MAX_CONNECTIONS when it is
// initialised, which this library does not see. So the number is known only if the variable is
// unchanged since the program started.
Connections CudaConnections();

// Streams of the library that may wait for a peer. They leave connections to the application's
// streams, so that a stream that waits does not block one of those.
class WaitingStreams {
 public:
  explicit WaitingStreams(cu::Context context) : context_(context) {}
  ~WaitingStreams();
  WaitingStreams(const WaitingStreams&) = delete;
  WaitingStreams& operator=(const WaitingStreams&) = delete;

  // Reserves connections of the context for `count` more streams. Returns false if too few are
  // left. `connections` is Connections::count.
  bool Reserve(size_t count, size_t connections);

 private:
  cu::Context context_;
  size_t reserved_ = 0;
};

}  // namespace nccltune::sendrecv
