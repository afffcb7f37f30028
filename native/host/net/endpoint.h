// SPDX-License-Identifier: Apache-2.0
// Owns the plugin in one of the two processes, and the connections of that process. A
// PluginEndpoint makes the calls that NCCL's init and proxy service threads make. Errors end the
// process.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "abi/net.h"
#include "host/net/host_process.h"
#include "host/net/net_plugin.h"

namespace nccltune::host::net {

// NCCL calls init and devices in one thread, connect, accept and regMr in another, and isend, irecv
// and test in a third.
inline void InThread(const std::function<void()>& part) { std::thread(part).join(); }

using NetHandle = std::array<char, abi::kNetHandleBytes>;

struct Connection {
  int number = 0;
  bool forward = true;  // from rank 0 to rank 1
  bool sends = false;   // whether this end sends
  void* comm = nullptr;
  void* listen_comm = nullptr;  // if this end receives, until it has accepted
  NetHandle handle = {};        // of the listener

  // Returns a name such as "connection 3 forward".
  std::string Name() const;
};

class PluginEndpoint {
 public:
  explicit PluginEndpoint(HostProcess* process) : process_(*process) {}

  // Opens the plugin and calls init, devices and getProperties. Returns false with *error if the
  // plugin cannot be opened.
  bool Open(std::string* error);
  // Creates the listeners, exchanges their handles, and calls connect and accept until all
  // connections are made.
  void Connect();
  // Closes everything in NCCL's order: send ends, receive ends. Works also after the peer is lost.
  void Close();
  // Calls finalize and unloads the plugin.
  void Unload();

  NetPlugin& plugin() { return *plugin_; }
  std::vector<Connection>& connections() { return connections_; }
  const std::string& device_name() const { return device_name_; }

 private:
  void Init();
  void Listen();
  void ExchangeHandles();
  void ConnectAll();
  // Makes one call for the connection. Returns whether the connection is complete.
  bool ConnectOnce(Connection* connection);

  HostProcess& process_;
  std::unique_ptr<NetPlugin> plugin_;
  void* context_ = nullptr;
  std::vector<Connection> connections_;
  int device_ = 0;
  std::string device_name_;
};

}  // namespace nccltune::host::net
