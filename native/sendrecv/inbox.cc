// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/inbox.h"

#include <unistd.h>

#include <optional>

namespace nccltune::sendrecv {
namespace {

// Of one look: nobody can keep us here.
constexpr int kMostLetters = 256;

}  // namespace

Inbox::~Inbox() {
  for (const auto& [key, delivery] : deliveries_) Release(delivery);
}

void Inbox::Release(const Delivery& delivery) const {
  for (const ChunkMemory& part : delivery.parts) chunks_.Release(part.memory);
}

bool Inbox::Take() {
  for (int i = 0; i < kMostLetters; ++i) {
    bool any = false;
    const std::optional<Mailbox::Received> received = mailbox_.Receive(&any);
    if (!any) return true;
    if (received) Accept(*received);
  }
  return false;
}

void Inbox::Accept(const Mailbox::Received& received) {
  const Letter& letter = received.letter;
  if (letter.place >= kMostLocal || received.user != getuid()) return;
  if (memory_.cards[letter.place].process != received.process) return;
  Delivery& delivery = deliveries_[{letter.place, letter.number}];
  if (delivery.refused) return;
  const bool fits = letter.count <= Letter::kMost && letter.first == delivery.parts.size() &&
                    letter.first + letter.count <= kMostChunks &&
                    received.descriptors.size() == letter.count;
  for (size_t i = 0; fits && i < letter.count; ++i) {
    const cu::Memory memory = chunks_.Import(received.descriptors[i]);
    if (memory == 0) break;
    delivery.parts.push_back({.memory = memory, .bytes = letter.bytes[i]});
  }
  if (delivery.parts.size() == letter.first + letter.count) return;
  delivery.refused = true;
  Release(delivery);
  delivery.parts.clear();
}

const Inbox::Delivery* Inbox::Of(size_t place, uint64_t number) const {
  const auto found = deliveries_.find({place, number});
  return found == deliveries_.end() ? nullptr : &found->second;
}

void Inbox::Drop(size_t place, uint64_t number) {
  const auto found = deliveries_.find({place, number});
  if (found == deliveries_.end()) return;
  Release(found->second);
  deliveries_.erase(found);
}

void Inbox::DropUnless(size_t place, const std::function<bool(uint64_t)>& offered) {
  std::erase_if(deliveries_, [&](const auto& each) {
    if (each.first.first != place || offered(each.first.second)) return false;
    Release(each.second);
    return true;
  });
}

}  // namespace nccltune::sendrecv
