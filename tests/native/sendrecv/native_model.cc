// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/native_model.h"

#include <algorithm>
#include <utility>

namespace nccltune::sendrecv {

std::shared_ptr<NativeLane::GroupMessage> NativeLane::At(size_t index) {
  while (messages_.size() <= index) messages_.push_back(std::make_shared<GroupMessage>());
  return messages_[index];
}

std::shared_ptr<NativeLane::GroupMessage> NativeLane::Next(Role role) {
  const std::scoped_lock lock(mutex_);
  return At(next_[static_cast<size_t>(role)]++);
}

void NativeLane::Begin(GroupMessage& message, Role role, std::vector<uint8_t> data, bool eager) {
  const std::scoped_lock lock(mutex_);
  if (role == Role::kReceiver) {
    message.receive_begun = true;
  } else {
    message.send_begun = true;
    message.eager = eager;
    message.bytes = data.size();
    message.data = std::move(data);
  }
  Advance();
}

// Messages are processed in order. One that cannot continue blocks those after it.
void NativeLane::Advance() {
  for (; first_ < messages_.size(); ++first_) {
    GroupMessage& message = *messages_[first_];
    if (!message.send_begun || !message.receive_begun) break;
    message.delivered = true;
    if (message.buffered) held_ -= message.bytes;
  }
  for (size_t i = first_; i < messages_.size(); ++i) {
    GroupMessage& message = *messages_[i];
    if (message.buffered) continue;
    if (!message.send_begun || !message.eager || held_ + message.bytes > capacity_) break;
    message.buffered = true;
    held_ += message.bytes;
  }
}

bool NativeLane::Over(const GroupMessage& message, Role role) {
  const std::scoped_lock lock(mutex_);
  Advance();
  return message.delivered || (role == Role::kSender && message.buffered);
}

bool NativeGroup(SoftDriver& driver, Stream stream, const std::vector<NativeCall>& calls) {
  struct One {
    NativeCall call;
    std::shared_ptr<NativeLane::GroupMessage> message;
  };
  const bool receives = std::ranges::any_of(
      calls, [](const NativeCall& each) { return each.role == Role::kReceiver; });
  auto all = std::make_shared<std::vector<One>>();
  for (const NativeCall& call : calls) {
    all->push_back({call, call.lane->Next(call.role)});
  }
  const auto begin = [all, &driver, eager = !receives] {
    for (const One& one : *all) {
      std::vector<uint8_t> data;
      if (one.call.role == Role::kSender) {
        data.resize(one.call.bytes);
        driver.Read(one.call.address, data.data(), data.size());
      }
      one.call.lane->Begin(*one.message, one.call.role, std::move(data), eager);
    }
  };
  const auto over = [all] {
    return std::ranges::all_of(
        *all, [](const One& one) { return one.call.lane->Over(*one.message, one.call.role); });
  };
  const auto receive = [all, &driver] {
    for (const One& one : *all) {
      if (one.call.role == Role::kSender) continue;
      driver.Write(one.call.address, one.message->data.data(), one.message->data.size());
    }
  };
  return driver.Kernel(stream, begin) && driver.Kernel(stream, receive, over);
}

}  // namespace nccltune::sendrecv
