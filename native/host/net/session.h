// SPDX-License-Identifier: Apache-2.0
// One of the two processes from dlopen to dlclose, in as many rounds as asked for.
#ifndef NCCLTUNE_HOST_NET_SESSION_H_
#define NCCLTUNE_HOST_NET_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/json.h"
#include "host/net/endpoint.h"
#include "host/net/exchange.h"
#include "host/net/stage.h"

namespace nccltune::host::net {

class Session {
 public:
  explicit Session(Stage* stage) : stage_(*stage) {}

  // The program's exit status; rank 0 has printed its line of JSON if it is 0.
  int Run();

 private:
  // What a plugin must not leave behind.
  struct Held {
    int64_t threads = 0;
    int64_t descriptors = 0;
  };
  static Held HeldNow();

  bool Round();
  // The messages, and after them all that NCCL does until the connections are closed.
  bool RunAndClose();
  bool CloseInFlight();
  json::Value OwnReport() const;
  bool PrintReport();

  Stage& stage_;
  // Of the round that runs. Kept after a failure, when the plugin may still use them.
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<Exchange> exchange_;
  std::string cannot_open_;
  Held left_;         // of the last round
  json::Value own_;   // of the last round, of this process
  json::Value head_;  // what is the same in both
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_SESSION_H_
