// SPDX-License-Identifier: Apache-2.0
// Owns the plugin in one of the two processes, and the connections of that process. A
// PluginEndpoint makes the calls that NCCL's init and proxy service threads make.
#ifndef NCCLTUNE_HOST_NET_ENDPOINT_H_
#define NCCLTUNE_HOST_NET_ENDPOINT_H_

#include <memory>
#include <string>
#include <vector>

#include "host/guarded.h"
#include "host/net/host_process.h"
#include "host/net/net_plugin.h"

namespace nccltune::host::net {

struct Connection {
  int number = 0;
  bool forward = true;  // from rank 0 to rank 1
  bool sends = false;   // whether this end sends
  void* comm = nullptr;

  // Returns a name such as "connection 3 forward".
  std::string Name() const;
};

class PluginEndpoint {
 public:
  explicit PluginEndpoint(HostProcess* process) : process_(*process) {}

  // Opens the plugin and calls init, devices and getProperties. Returns false with *error if the
  // plugin cannot be opened. Errors of the plugin are reported to the HostProcess.
  bool Open(std::string* error);
  // Creates the listeners, exchanges their handles, and calls connect and accept until all
  // connections are made.
  bool Connect();
  // Closes everything in NCCL's order: send ends, receive ends, listeners. Works also after the
  // peer is lost.
  bool Close();
  // Calls finalize and unloads the plugin.
  bool Unload();

  NetPlugin& plugin() { return *plugin_; }
  std::vector<Connection>& connections() { return connections_; }
  int device() const { return device_; }
  const NetProperties& properties() const { return properties_; }
  const std::string& name() const { return name_; }
  int version() const { return version_; }

 private:
  struct Listener {
    size_t connection = 0;
    void* comm = nullptr;
    std::unique_ptr<GuardedBytes> handle;
  };

  bool Init();
  bool CheckProperties();
  bool ListenOnce(Listener* listener);
  void ListenAll();
  bool TakeHandles();
  // Make one call for each incomplete connection. Return true if a connection is still incomplete.
  bool ConnectOnce();
  bool AcceptOnce();
  void Repeat(bool (PluginEndpoint::*step)());
  void CloseAll();

  HostProcess& process_;
  std::unique_ptr<NetPlugin> plugin_;
  void* context_ = nullptr;
  std::vector<Connection> connections_;
  std::vector<Listener> listeners_;
  std::vector<std::unique_ptr<GuardedBytes>> handles_;  // handles of the peer, by connection
  int device_ = 0;
  NetProperties properties_;
  std::string name_;
  int version_ = 0;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_ENDPOINT_H_
