// SPDX-License-Identifier: Apache-2.0
// What messages carry: sizes and bytes that both processes compute from the same few numbers.
#ifndef NCCLTUNE_HOST_NET_CONTENT_H_
#define NCCLTUNE_HOST_NET_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nccltune::host::net {

// Sizes in turn, each `repeat` times, or any size from the first to the second.
struct Sizes {
  std::vector<uint64_t> list;
  bool range = false;
  uint64_t repeat = 1;

  uint64_t Largest() const;
};

// The messages of one connection in one direction.
class Content {
 public:
  Content(const Sizes& sizes, uint64_t seed, int connection, bool forward);

  // Of a range every order of magnitude comes up equally often.
  uint64_t SizeOf(uint64_t sequence) const;

  void Fill(uint64_t sequence, void* data, uint64_t bytes) const;

  bool Matches(uint64_t sequence, const void* data, uint64_t bytes) const;

  // Where the bytes are not those of message `sequence`, in words, and whose they are if that can
  // be told; nothing where they match.
  std::optional<std::string> Difference(uint64_t sequence, const void* data, uint64_t bytes) const;

 private:
  uint64_t KeyOf(uint64_t sequence) const;

  Sizes sizes_;
  uint64_t key_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_CONTENT_H_
