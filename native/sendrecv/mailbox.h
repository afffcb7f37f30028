// SPDX-License-Identifier: Apache-2.0
//
// Descriptors of memory from rank to rank: a datagram socket for each rank of a communicator, which
// never waits.
#ifndef NCCLTUNE_SENDRECV_MAILBOX_H_
#define NCCLTUNE_SENDRECV_MAILBOX_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sendrecv/descriptor.h"

namespace nccltune::sendrecv {

// Some chunks of a share, in order.
struct Letter {
  // A message of the kernel's takes 253 descriptors at most.
  static constexpr size_t kMost = 64;

  uint64_t place = 0;   // the sender's
  uint64_t number = 0;  // of the share
  uint64_t first = 0;   // which of its chunks
  uint64_t count = 0;
  std::array<uint64_t, kMost> bytes = {};
};

class Mailbox {
 public:
  enum class Outcome : uint8_t {
    kSent,
    kFull,  // later, maybe
    kGone,  // nobody is there
  };

  struct Received {
    int64_t process = 0;  // who the kernel says has sent it
    int64_t user = 0;
    Letter letter;
    // As many as the letter tells of, or fewer where this process may have no more.
    std::vector<Descriptor> descriptors;
  };

  // `name`: of the communicator's segment. Null: the system refused.
  static std::unique_ptr<Mailbox> Open(std::string_view name, size_t place);

  // To the rank in another place.
  Outcome Send(size_t place, const Letter& letter, const std::vector<Descriptor>& descriptors);
  // `any` tells whether something was there at all: what is no letter is thrown away.
  std::optional<Received> Receive(bool* any);

 private:
  Mailbox(std::string_view name, Descriptor socket) : name_(name), socket_(std::move(socket)) {}

  std::string name_;
  Descriptor socket_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_MAILBOX_H_
