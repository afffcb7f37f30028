// SPDX-License-Identifier: Apache-2.0
#include "host/net/endpoint.h"

#include <poll.h>

#include <cstring>
#include <utility>

namespace nccltune::host::net {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 40;        // NCCL_MAX_NET_SIZE_BYTES
constexpr uint64_t kCommunicator = 0x6e63636c74756e65U;  // any number

}  // namespace

std::string Connection::Name() const {
  return "connection " + std::to_string(number) + (forward ? " forward" : " backward");
}

bool PluginEndpoint::Open(std::string* error) {
  const NetCheckOptions& options = process_.options();
  plugin_ = NetPlugin::Open(options.plugin, options.interface, error);
  if (plugin_ == nullptr) return false;
  name_ = plugin_->name();
  version_ = plugin_->version();
  process_.Run({[this] { Init(); }});
  return true;
}

bool PluginEndpoint::Init() {
  const NetCheckOptions& options = process_.options();
  abi::Result result = plugin_->Init(kCommunicator, options.traffic_class, &context_);
  if (result != abi::kSuccess) return process_.PluginError("communicator", "init", result);
  int count = -1;
  result = plugin_->Devices(&count);
  if (result != abi::kSuccess) return process_.PluginError("devices", "devices", result);
  if (count <= 0) return process_.Fail("the plugin has " + std::to_string(count) + " devices");
  device_ = options.device;
  if (!options.members.empty()) {
    const abi::Result made = plugin_->MakeVirtualDevice(options.members, &device_);
    if (made != abi::kSuccess) return process_.PluginError("devices", "makeVDevice", made);
  } else if (device_ >= count) {
    return process_.Fail("there is no device " + std::to_string(device_) + ": the plugin has " +
                         std::to_string(count));
  }
  return CheckProperties();
}

bool PluginEndpoint::CheckProperties() {
  std::string fault;
  const std::string where = "device " + std::to_string(device_);
  const abi::Result result = plugin_->GetProperties(device_, &properties_, &fault);
  if (result != abi::kSuccess) return process_.PluginError(where, "getProperties", result);
  if (fault.empty()) {
    const auto not_a_size = [](uint64_t bytes) { return bytes == 0 || bytes > kMaxBytes; };
    if ((properties_.ptr_support & kPointerHost) == 0) fault = "takes no host memory";
    if (properties_.max_comms < 1) fault = "allows no connection (maxComms)";
    if (properties_.max_recvs < 1 || properties_.max_recvs > kMaxRecvs) {
      fault = "groups " + std::to_string(properties_.max_recvs) + " receives (maxRecvs)";
    }
    if (plugin_->version() >= 9 &&
        (not_a_size(properties_.max_p2p_bytes) || not_a_size(properties_.max_coll_bytes))) {
      fault = "has a maxP2pBytes or maxCollBytes that is not from 1 to 1 TiB";
    }
  }
  return fault.empty() || process_.Fail(where + ": getProperties " + fault);
}

bool PluginEndpoint::Connect() {
  const NetCheckOptions& options = process_.options();
  for (const bool forward : {true, false}) {
    if (!forward && !options.both) break;
    for (int number = 0; number < options.connections; ++number) {
      Connection connection;
      connection.number = number;
      connection.forward = forward;
      connection.sends = forward == (process_.rank() == 0);
      connections_.push_back(connection);
    }
  }
  if (!process_.Run({[this] { ListenAll(); }}) || !TakeHandles()) return false;
  return process_.Run({[this] { Repeat(&PluginEndpoint::ConnectOnce); },
                       [this] { Repeat(&PluginEndpoint::AcceptOnce); }});
}

bool PluginEndpoint::ListenOnce(Listener* listener) {
  listener->handle = std::make_unique<GuardedBytes>("handle", kHandleBytes);
  const abi::Result result =
      plugin_->Listen(context_, device_, listener->handle->data(), &listener->comm);
  if (result != abi::kSuccess) return process_.PluginError("listener", "listen", result);
  if (const auto damage = listener->handle->TakeDamage()) return process_.Fail("listen " + *damage);
  return listener->comm != nullptr || process_.Fail("listen gave no listenComm");
}

void PluginEndpoint::ListenAll() {
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (connections_[i].sends) continue;
    listeners_.emplace_back();
    listeners_.back().connection = i;
    if (!ListenOnce(&listeners_.back())) return;
  }
}

bool PluginEndpoint::TakeHandles() {
  std::string mine;
  for (const Listener& listener : listeners_) {
    mine.append(static_cast<const char*>(listener.handle->data()), kHandleBytes);
  }
  process_.Send(PeerMessage::kHandles, mine);
  std::string theirs;
  if (!process_.Await(PeerMessage::kHandles, &theirs)) return false;
  size_t at = 0;
  for (const Connection& connection : connections_) {
    handles_.emplace_back();
    if (!connection.sends) continue;
    if (theirs.size() - at < kHandleBytes) {
      return process_.Fail("the other process has other options: it sent too few handles");
    }
    handles_.back() = std::make_unique<GuardedBytes>("handle", kHandleBytes);
    std::memcpy(handles_.back()->data(), theirs.data() + at, kHandleBytes);
    at += kHandleBytes;
  }
  return true;
}

bool PluginEndpoint::ConnectOnce() {
  bool left = false;
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    if (!connection.sends || connection.comm != nullptr) continue;
    // Pass the same buffer in every attempt, because a plugin may keep its state in it.
    const abi::Result result =
        plugin_->Connect(context_, device_, handles_[i]->data(), &connection.comm);
    if (result != abi::kSuccess) return process_.PluginError(connection.Name(), "connect", result);
    if (const auto damage = handles_[i]->TakeDamage()) {
      return process_.Fail(connection.Name() + ": connect " + *damage);
    }
    left = left || connection.comm == nullptr;
  }
  return left;
}

bool PluginEndpoint::AcceptOnce() {
  bool left = false;
  for (Listener& listener : listeners_) {
    Connection& connection = connections_[listener.connection];
    if (connection.comm != nullptr) continue;
    const abi::Result result = plugin_->Accept(listener.comm, &connection.comm);
    if (result != abi::kSuccess) return process_.PluginError(connection.Name(), "accept", result);
    if (connection.comm == nullptr) {
      left = true;
      continue;
    }
    // NCCL accepts one connection from each listener and then closes it.
    const abi::Result closed = plugin_->CloseListen(std::exchange(listener.comm, nullptr));
    if (closed != abi::kSuccess) {
      return process_.PluginError(connection.Name(), "closeListen", closed);
    }
  }
  return left;
}

void PluginEndpoint::Repeat(bool (PluginEndpoint::*step)()) {
  const int64_t start = NowNs();
  while ((this->*step)() && !process_.stopped()) {
    if (NowNs() - start > kSecond * process_.options().timeout_s) {
      for (const Connection& connection : connections_) {
        if (connection.comm != nullptr) continue;
        process_.Fail(connection.Name() + ": " + (connection.sends ? "connect" : "accept") +
                      " gave no connection for " + std::to_string(process_.options().timeout_s) +
                      " s");
        return;
      }
    }
    poll(nullptr, 0, 1);
  }
}

bool PluginEndpoint::Close() {
  return process_.Run({[this] { CloseAll(); }});
}

void PluginEndpoint::CloseAll() {
  for (const bool sends : {true, false}) {
    for (Connection& connection : connections_) {
      if (connection.sends != sends || connection.comm == nullptr) continue;
      void* const comm = std::exchange(connection.comm, nullptr);
      const abi::Result result = sends ? plugin_->CloseSend(comm) : plugin_->CloseRecv(comm);
      if (result != abi::kSuccess) {
        process_.PluginError(connection.Name(), sends ? "closeSend" : "closeRecv", result);
      }
    }
  }
  for (Listener& listener : listeners_) {
    if (listener.comm == nullptr) continue;
    const abi::Result result = plugin_->CloseListen(std::exchange(listener.comm, nullptr));
    if (result != abi::kSuccess) process_.PluginError("listener", "closeListen", result);
  }
}

bool PluginEndpoint::Unload() {
  const bool ended = process_.Run({[this] {
    const abi::Result result = plugin_->Finalize(context_);
    if (result != abi::kSuccess) process_.PluginError("communicator", "finalize", result);
  }});
  plugin_.reset();
  return ended;
}

}  // namespace nccltune::host::net
