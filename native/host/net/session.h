// SPDX-License-Identifier: Apache-2.0
// Runs one of the two processes, from opening the plugin to closing it, for the requested number of
// rounds.
#ifndef NCCLTUNE_HOST_NET_SESSION_H_
#define NCCLTUNE_HOST_NET_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/json.h"
#include "host/net/endpoint.h"
#include "host/net/exchange.h"
#include "host/net/host_process.h"

namespace nccltune::host::net {

class Session {
 public:
  explicit Session(HostProcess* process) : process_(*process) {}

  // Returns the program's exit status. If it is 0, rank 0 has printed its line of JSON.
  int Run();

 private:
  // Resources that a plugin must release before it is unloaded.
  struct ProcessResources {
    int64_t threads = 0;
    int64_t descriptors = 0;
  };
  static ProcessResources HeldNow();

  bool Round();
  // Exchanges the messages and closes the connections, with all the calls that NCCL makes.
  bool RunAndClose();
  bool CloseInFlight();
  json::Value OwnReport() const;
  bool PrintReport();

  HostProcess& process_;
  // Objects of the current round. They are kept after a failure, because the plugin may still use
  // them.
  std::unique_ptr<PluginEndpoint> endpoint_;
  std::unique_ptr<MessageExchange> exchange_;
  std::string cannot_open_;
  ProcessResources left_behind_;  // additional resources after the last round
  json::Value own_report_;        // this process's report of the last round
  json::Value common_report_;     // the part of the report that is the same in both processes
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_SESSION_H_
