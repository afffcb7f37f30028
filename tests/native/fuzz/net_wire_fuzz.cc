// SPDX-License-Identifier: Apache-2.0
// Passes arbitrary bytes to the decoders, and as a peer's data to complete receivers and senders
// (../net/fuzz_*.cc). Those run with threads and sockets, so an input usually, but not always, has
// the same effect twice.
#include "net/fuzz_socket.h"
#include "standard.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nccltune::net::FuzzWire(std::span(data, size));
  return 0;
}
