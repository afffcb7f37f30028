// SPDX-License-Identifier: Apache-2.0
//
// Any bytes through the decoders, and as what a peer says to whole receiving and sending ends
// (../net/fuzz_*.cc). They run with threads and sockets: that an input does the same twice is
// likely, not certain.
#include <cstddef>
#include <cstdint>
#include <span>

#include "net/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nccltune::net::FuzzWire(std::span(data, size));
  return 0;
}
