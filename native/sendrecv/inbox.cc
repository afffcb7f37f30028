// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/inbox.h"

#include <unistd.h>

#include <optional>

namespace nccltune::sendrecv {
namespace {

// Most datagrams that one call reads, so that a fast sender cannot keep this thread here.
constexpr int kMaxDatagrams = 256;

}  // namespace

Inbox::~Inbox() {
  for (const auto& [key, delivery] : deliveries_) Release(delivery);
}

void Inbox::Release(const ReceivedChunks& delivery) const {
  for (const ChunkMemory& chunk : delivery.chunks) importer_.Release(chunk.memory);
}

bool Inbox::ReadAll() {
  for (int i = 0; i < kMaxDatagrams; ++i) {
    bool any = false;
    const std::optional<Mailbox::Received> received = mailbox_.Receive(&any);
    if (!any) return true;
    if (received) Accept(*received);
  }
  return false;
}

void Inbox::Accept(const Mailbox::Received& received) {
  const ChunkMessage& datagram = received.datagram;
  if (datagram.place >= kMaxLocalRanks || received.user != getuid()) return;
  // The token proves the sender: it is in the sender's record, which only this user can read.
  // A process id would not prove the sender, because process ids are not unique across PID
  // namespaces.
  if (memory_.records[datagram.place].process != datagram.process) return;
  ReceivedChunks& delivery = deliveries_[{datagram.place, datagram.number}];
  if (delivery.refused) return;
  const bool fits = datagram.count <= ChunkMessage::kMaxChunks &&
                    datagram.first == delivery.chunks.size() &&
                    datagram.first + datagram.count <= kMaxEntryChunks &&
                    received.descriptors.size() == datagram.count;
  for (size_t i = 0; fits && i < datagram.count; ++i) {
    const cu::Memory memory = importer_.Import(received.descriptors[i]);
    if (memory == 0) break;
    delivery.chunks.push_back({.memory = memory, .bytes = datagram.bytes[i]});
  }
  if (delivery.chunks.size() == datagram.first + datagram.count) return;
  delivery.refused = true;
  Release(delivery);
  delivery.chunks.clear();
}

const Inbox::ReceivedChunks* Inbox::Find(size_t place, uint64_t number) const {
  const auto found = deliveries_.find({place, number});
  return found == deliveries_.end() ? nullptr : &found->second;
}

void Inbox::Drop(size_t place, uint64_t number) {
  const auto found = deliveries_.find({place, number});
  if (found == deliveries_.end()) return;
  Release(found->second);
  deliveries_.erase(found);
}

void Inbox::DropUnless(size_t place, const std::function<bool(uint64_t)>& exported) {
  std::erase_if(deliveries_, [&](const auto& each) {
    if (each.first.first != place || exported(each.first.second)) return false;
    Release(each.second);
    return true;
  });
}

}  // namespace nccltune::sendrecv
