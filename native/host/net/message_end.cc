// SPDX-License-Identifier: Apache-2.0
#include "host/net/message_end.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace nccltune::host::net {
namespace {

// Values that a plugin is unlikely to write. kUnset marks `done` and the sizes, kAfterMessage the
// bytes behind a message, kClosed the buffers of a closed connection.
constexpr int kUnset = -0x5A5A5A5A;
constexpr unsigned char kAfterMessage = 0xEE;
constexpr unsigned char kClosed = 0xC3;
constexpr int kPointerCuda = 2;
constexpr uint64_t kAlignment = 64;

// Returns an invalid pointer, which *request holds before each call. If *request still holds this
// pointer after the call, the plugin did not set *request.
void* UnsetRequest() { return reinterpret_cast<void*>(uintptr_t{0xDEAD0}); }

bool AllAre(unsigned char value, const unsigned char* begin, const unsigned char* end) {
  return std::all_of(begin, end, [value](unsigned char byte) { return byte == value; });
}

}  // namespace

MessageEnd::MessageEnd(HostProcess* process, PluginEndpoint* endpoint, Connection* connection,
                       bool check)
    : process_(*process),
      endpoint_(*endpoint),
      connection_(*connection),
      options_(process->options()),
      check_(check),
      content_(options_.sizes, options_.seed, connection->number, connection->forward),
      slots_(static_cast<size_t>(options_.window)),
      random_(options_.seed + static_cast<uint64_t>(connection->number)),
      capacity_(options_.sizes.Largest() + (check ? options_.slack : 0)) {
  for (size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
}

std::string MessageEnd::MessageName(uint64_t sequence) const {
  return connection_.Name() + ", " + (sends() ? "sent" : "received") + " message " +
         std::to_string(sequence) + " of " + std::to_string(SizeOf(sequence)) + " bytes";
}

bool MessageEnd::FailMessage(uint64_t sequence, const std::string& what) {
  return process_.Fail(MessageName(sequence) + ": " + what);
}

uint64_t MessageEnd::SizeOf(uint64_t sequence) const {
  return first_empty_ && sequence >= *first_empty_ ? 0 : content_.SizeOf(sequence);
}

void MessageEnd::Register() {
  for (Slot& slot : slots_) {
    slot.memory = std::make_unique<GuardedBytes>("buffer", capacity_);
    const abi::Result result = endpoint_.plugin().RegMr(connection_.comm, slot.memory->data(),
                                                        capacity_, kPointerHost, &slot.mhandle);
    if (result != abi::kSuccess) {
      process_.PluginError(connection_.Name(), "regMr", result);
      return;
    }
  }
  if ((endpoint_.properties().ptr_support & kPointerCuda) != 0) return;
  void* mhandle = nullptr;
  if (endpoint_.plugin().RegMr(connection_.comm, slots_[0].memory->data(), capacity_, kPointerCuda,
                               &mhandle) == abi::kSuccess) {
    process_.Fail(connection_.Name() +
                  ": regMr takes GPU memory, which the device's ptrSupport excludes");
  }
}

void MessageEnd::Deregister() {
  for (const Slot& slot : slots_) {
    const abi::Result result = endpoint_.plugin().DeregMr(connection_.comm, slot.mhandle);
    if (result != abi::kSuccess) process_.PluginError(connection_.Name(), "deregMr", result);
  }
}

uint64_t MessageEnd::StopPosting() {
  limit_ = posted_;
  return posted_;
}

void MessageEnd::EndAfter(uint64_t messages) {
  first_empty_ = messages;
  limit_ = messages + slots_.size();
  // The next slot may already be prepared with the old size; prepare it again.
  if (!free_.empty()) slots_[free_.front()].data = nullptr;
}

bool MessageEnd::Step(bool* moved) {
  if (!free_.empty() && posted_ < limit_ && !Post(moved)) return false;
  return outstanding_.empty() || TestOne(moved);
}

bool MessageEnd::Fill() {
  bool moved = true;
  while (moved && !free_.empty() && posted_ < limit_) {
    moved = false;
    if (!Post(&moved)) return false;
  }
  return true;
}

void MessageEnd::Prepare(Slot* slot, uint64_t bytes) {
  slot->sequence = posted_;
  slot->request = UnsetRequest();
  slot->message_bytes = bytes;
  slot->posted_bytes = bytes;
  slot->data = static_cast<unsigned char*>(slot->memory->data());
  if (!check_) return;
  if (!sends()) slot->posted_bytes += random_() % (options_.slack + 1);
  // Put the message at the end of the buffer, close to the guard bytes that detect writes outside
  // the buffer.
  slot->data += (capacity_ - slot->posted_bytes) / kAlignment * kAlignment;
  if (sends()) {
    content_.Fill(posted_, slot->data, bytes);
  } else {
    auto* const end = static_cast<unsigned char*>(slot->memory->data()) + capacity_;
    std::fill(slot->data + bytes, end, kAfterMessage);
  }
}

bool MessageEnd::Post(bool* moved) {
  Slot& slot = slots_[free_.front()];
  NetPlugin& plugin = endpoint_.plugin();
  // Prepare the slot, unless an earlier attempt for the same message already prepared it and got no
  // request.
  if (slot.data == nullptr || slot.sequence != posted_) Prepare(&slot, SizeOf(posted_));
  slot.request = UnsetRequest();
  const int tag = connection_.forward ? 0 : 1;
  const abi::Result result = sends()
                                 ? plugin.Isend(connection_.comm, slot.data, slot.posted_bytes, tag,
                                                slot.mhandle, &slot.phandle, &slot.request)
                                 : plugin.Irecv(connection_.comm, slot.data, slot.posted_bytes, tag,
                                                slot.mhandle, &slot.phandle, &slot.request);
  const char* const call = sends() ? "isend" : "irecv";
  if (result != abi::kSuccess) return process_.PluginError(MessageName(posted_), call, result);
  if (slot.request == UnsetRequest()) {
    return FailMessage(posted_, std::string(call) + " did not set the request");
  }
  if (slot.request == nullptr) return true;
  *moved = true;
  ++posted_;
  outstanding_.push_back(free_.front());
  free_.pop_front();
  return true;
}

bool MessageEnd::TestOne(bool* moved) {
  const Slot& slot = slots_[outstanding_.front()];
  int done = kUnset;
  std::array<int, kMaxRecvs> sizes{};
  sizes[0] = kUnset;
  const abi::Result result = endpoint_.plugin().Test(slot.request, &done, sizes.data());
  if (result != abi::kSuccess) {
    return process_.PluginError(MessageName(slot.sequence), "test", result);
  }
  // The plugin must always set `done`, because NCCL does not initialize it.
  if (done == kUnset) return FailMessage(slot.sequence, "test did not set done");
  if (done == 0) return true;
  if (std::any_of(sizes.begin() + 1, sizes.end(), [](int size) { return size != 0; })) {
    return FailMessage(slot.sequence, "test wrote more than one size");
  }
  const uint64_t expected = sends() ? slot.posted_bytes : SizeOf(slot.sequence);
  if (sizes[0] == kUnset) {
    if (!sends()) return FailMessage(slot.sequence, "test did not set the size");
  } else if (sizes[0] < 0 || static_cast<uint64_t>(sizes[0]) != expected) {
    return FailMessage(slot.sequence, "test reports " + std::to_string(sizes[0]) + " bytes");
  }
  *moved = true;
  return Complete();
}

bool MessageEnd::Complete() {
  Slot& slot = slots_[outstanding_.front()];
  const uint64_t size = SizeOf(slot.sequence);
  if (check_) {
    if (const auto difference = content_.Difference(slot.sequence, slot.data, size)) {
      return FailMessage(slot.sequence, sends() ? "was changed while it was sent" : *difference);
    }
    auto* const end = static_cast<unsigned char*>(slot.memory->data()) + capacity_;
    if (!sends() && !AllAre(kAfterMessage, slot.data + slot.message_bytes, end)) {
      return FailMessage(slot.sequence, "bytes behind the message were written");
    }
    if (const auto damage = slot.memory->TakeDamage()) return FailMessage(slot.sequence, *damage);
  }
  slot.data = nullptr;
  bytes_ += size;
  ++completed_;
  free_.push_back(outstanding_.front());
  outstanding_.pop_front();
  return true;
}

bool MessageEnd::CheckGuards() {
  for (Slot& slot : slots_) {
    if (const auto damage = slot.memory->TakeDamage()) {
      return process_.Fail(connection_.Name() + ": " + *damage);
    }
  }
  return true;
}

void MessageEnd::MarkOutstanding() {
  for (const size_t index : outstanding_) {
    std::memset(slots_[index].memory->data(), kClosed, capacity_);
  }
}

bool MessageEnd::CheckMarks() {
  for (const size_t index : outstanding_) {
    const auto* const begin = static_cast<unsigned char*>(slots_[index].memory->data());
    if (!AllAre(kClosed, begin, begin + capacity_)) {
      return FailMessage(slots_[index].sequence, "was written to after its connection was closed");
    }
  }
  return true;
}

std::string MessageEnd::Waiting() const {
  if (outstanding_.empty()) {
    return MessageName(posted_) + ": " + (sends() ? "isend" : "irecv") + " gave no request";
  }
  return MessageName(slots_[outstanding_.front()].sequence) + ": is not done";
}

}  // namespace nccltune::host::net
