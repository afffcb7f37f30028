// SPDX-License-Identifier: Apache-2.0
#include "host/net/endpoint.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace nccltune::host::net {
namespace {

constexpr uint64_t kCommunicator = 0x6e63636c74756e65U;  // any number

}  // namespace

std::string Connection::Name() const {
  return "connection " + std::to_string(number) + (forward ? " forward" : " backward");
}

bool PluginEndpoint::Open(std::string* error) {
  plugin_ = NetPlugin::Open(process_.options().plugin, process_.options().interface, error);
  if (plugin_ == nullptr) return false;
  InThread([this] { Init(); });
  return true;
}

void PluginEndpoint::Init() {
  const NetCheckOptions& options = process_.options();
  const auto check = [this](const char* call, abi::Result result) {
    if (result != abi::kSuccess) process_.PluginError("communicator", call, result);
  };
  check("init", plugin_->Init(kCommunicator, options.traffic_class, &context_));
  int count = -1;
  check("devices", plugin_->Devices(&count));
  device_ = options.device;
  if (!options.members.empty()) {
    check("makeVDevice", plugin_->MakeVirtualDevice(options.members, &device_));
  } else if (device_ >= count) {
    process_.Fail("there is no device " + std::to_string(device_) + ": the plugin has " +
                  std::to_string(count) + " devices");
  }
  check("getProperties", plugin_->GetName(device_, &device_name_));
}

void PluginEndpoint::Connect() {
  const NetCheckOptions& options = process_.options();
  for (const bool forward : {true, false}) {
    if (!forward && !options.both) break;
    for (int number = 0; number < options.connections; ++number) {
      Connection& connection = connections_.emplace_back();
      connection.number = number;
      connection.forward = forward;
      connection.sends = forward == (process_.rank() == 0);
    }
  }
  InThread([this] { Listen(); });
  ExchangeHandles();
  InThread([this] { ConnectAll(); });
}

void PluginEndpoint::Listen() {
  for (Connection& each : connections_) {
    if (each.sends) continue;
    const abi::Result result =
        plugin_->Listen(context_, device_, each.handle.data(), &each.listen_comm);
    if (result != abi::kSuccess) process_.PluginError("listener", "listen", result);
  }
}

void PluginEndpoint::ExchangeHandles() {
  std::string mine;
  for (const Connection& each : connections_) {
    if (!each.sends) mine.append(each.handle.data(), each.handle.size());
  }
  process_.Send(PeerMessage::kHandles, mine);
  const std::string theirs = process_.Await(PeerMessage::kHandles);
  size_t at = 0;
  for (Connection& each : connections_) {
    if (!each.sends) continue;
    if (theirs.size() - at < each.handle.size()) {
      process_.Fail("the other process has other options: it sent too few handles");
    }
    theirs.copy(each.handle.data(), each.handle.size(), at);
    at += each.handle.size();
  }
}

bool PluginEndpoint::ConnectOnce(Connection* connection) {
  if (connection->comm != nullptr) return true;
  // Pass the same handle in every attempt, because a plugin may keep its state in it.
  const abi::Result result =
      connection->sends
          ? plugin_->Connect(context_, device_, connection->handle.data(), &connection->comm)
          : plugin_->Accept(connection->listen_comm, &connection->comm);
  const char* const call = connection->sends ? "connect" : "accept";
  if (result != abi::kSuccess) process_.PluginError(connection->Name(), call, result);
  if (connection->comm == nullptr) return false;
  if (!connection->sends) {
    // NCCL accepts one connection from each listener and then closes it.
    const abi::Result closed =
        plugin_->CloseListen(std::exchange(connection->listen_comm, nullptr));
    if (closed != abi::kSuccess) process_.PluginError(connection->Name(), "closeListen", closed);
  }
  return true;
}

void PluginEndpoint::ConnectAll() {
  const int64_t start = NowNs();
  for (;;) {
    const Connection* left = nullptr;
    for (Connection& each : connections_) {
      if (!ConnectOnce(&each)) left = &each;
    }
    if (left == nullptr) return;
    if (NowNs() - start > kSecond * process_.options().timeout_s) {
      process_.Fail(left->Name() + ": " + (left->sends ? "connect" : "accept") +
                    " gave no connection for " + std::to_string(process_.options().timeout_s) +
                    " s");
    }
    process_.Look(1);
  }
}

void PluginEndpoint::Close() {
  InThread([this] {
    for (const bool sends : {true, false}) {
      for (Connection& each : connections_) {
        if (each.sends != sends) continue;
        void* const comm = std::exchange(each.comm, nullptr);
        const abi::Result result = sends ? plugin_->CloseSend(comm) : plugin_->CloseRecv(comm);
        const char* const call = sends ? "closeSend" : "closeRecv";
        if (result != abi::kSuccess) process_.PluginError(each.Name(), call, result);
      }
    }
  });
}

void PluginEndpoint::Unload() {
  InThread([this] {
    const abi::Result result = plugin_->Finalize(context_);
    if (result != abi::kSuccess) process_.PluginError("communicator", "finalize", result);
  });
  plugin_.reset();
}

}  // namespace nccltune::host::net
