// SPDX-License-Identifier: Apache-2.0
// The plugin in one of the two processes, and the connections that it makes: what NCCL's init and
// proxy service threads call.
#ifndef NCCLTUNE_HOST_NET_ENDPOINT_H_
#define NCCLTUNE_HOST_NET_ENDPOINT_H_

#include <memory>
#include <string>
#include <vector>

#include "host/guarded.h"
#include "host/net/net_plugin.h"
#include "host/net/stage.h"

namespace nccltune::host::net {

struct Connection {
  int number = 0;
  bool forward = true;  // from rank 0 to rank 1
  bool sends = false;   // this end of it
  void* context = nullptr;
  void* comm = nullptr;

  // "connection 3 forward"
  std::string Name() const;
};

class Endpoint {
 public:
  explicit Endpoint(Stage* stage) : stage_(*stage) {}

  // dlopen, init, devices, properties. False and *error if there is no such plugin; what the plugin
  // does wrong is the stage's.
  bool Open(std::string* error);
  // Listeners' handles are exchanged, then connect and accept are called until all is connected.
  bool Connect();
  // In the order of NCCL: send ends, receive ends, listeners; works with a lost peer, too.
  bool Close();
  // finalize and dlclose.
  bool Shut();

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
  bool ListenOnce(void* context, Listener* listener);
  void ListenAll();
  bool TakeHandles();
  // One call for each connection that does not stand yet; true if one is left.
  bool ConnectOnce();
  bool AcceptOnce();
  void Repeat(int delay_ms, const std::vector<bool (Endpoint::*)()>& steps);
  void CloseAll();

  Stage& stage_;
  std::unique_ptr<NetPlugin> plugin_;
  std::vector<void*> contexts_;
  std::vector<Connection> connections_;
  std::vector<Listener> listeners_;
  std::vector<Listener> idle_;
  std::vector<std::unique_ptr<GuardedBytes>> handles_;  // of the peer, for each connection
  int device_ = 0;
  NetProperties properties_;
  std::string name_;
  int version_ = 0;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_ENDPOINT_H_
