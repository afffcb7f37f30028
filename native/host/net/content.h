// SPDX-License-Identifier: Apache-2.0
// The content of test messages. Both processes compute the same sizes and bytes from the options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nccltune::host::net {

// Message sizes. Without `range`: the entries of the list in order. With `range`: random
// sizes from the first to the second entry.
struct Sizes {
  std::vector<uint64_t> list;
  bool range = false;

  uint64_t Largest() const;
};

// The content of the messages of one connection in one direction.
class Content {
 public:
  Content(const Sizes& sizes, int connection, bool forward);

  // Returns the size of message `sequence`. In a range, every order of magnitude is equally likely.
  uint64_t SizeOf(uint64_t sequence) const;

  void Fill(uint64_t sequence, void* data, uint64_t bytes) const;

  // Returns nullopt if the bytes match message `sequence`, else a text that names the first wrong
  // bytes.
  std::optional<std::string> Difference(uint64_t sequence, const void* data, uint64_t bytes) const;

 private:
  uint64_t KeyOf(uint64_t sequence) const;

  Sizes sizes_;
  uint64_t key_;
};

}  // namespace nccltune::host::net
