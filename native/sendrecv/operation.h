// SPDX-License-Identifier: Apache-2.0
//
// One operation that a plan enqueues in a stream.
#ifndef NCCLTUNE_SENDRECV_OPERATION_H_
#define NCCLTUNE_SENDRECV_OPERATION_H_

#include <cstddef>
#include <cstdint>

#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

struct Operation {
  enum class Kind : uint8_t {
    kWrite,
    kWait,
    kCopy,
    kFork,  // `stream` waits for the work that is in `other` at this point
    kMark,  // records an event in `stream`, which kJoin waits for
    kJoin,  // the application's stream waits for the last kMark of `stream`
  };
  Kind kind = Kind::kWrite;
  size_t stream = 0;  // index in Plan::streams
  size_t other = 0;
  Flag* flag = nullptr;
  uint32_t value = 0;
  DeviceAddress to = 0;
  DeviceAddress from = 0;
  uint64_t bytes = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_OPERATION_H_
