// SPDX-License-Identifier: Apache-2.0
//
// All flows of a new connection on their way up, over as many calls of connect as it takes.
#ifndef NCCLTUNE_NET_CONNECTOR_H_
#define NCCLTUNE_NET_CONNECTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/dialer.h"
#include "net/handle.h"
#include "net/pool.h"
#include "net/sender.h"
#include "net/transport.h"

namespace nccltune::net {

class Connector {
 public:
  // `flows` bulk flows, spread over the device's NICs by their speed.
  Connector(const Surroundings& surroundings, const Device& device, const Invitation& invitation,
            std::shared_ptr<Pool> pool, int flows);

  enum class State { kWorking, kReady, kFailed };
  State Step();
  // What Step made ready.
  Sender* Take();
  const std::string& reason() const { return reason_; }
  // True once.
  bool FirstTold() { return !std::exchange(told_, true); }

 private:
  Surroundings surroundings_;
  std::string device_;
  std::shared_ptr<Pool> pool_;
  std::vector<Dialer> dialers_;
  std::vector<int64_t> again_ns_;
  int64_t begun_ns_;
  int64_t pause_ns_;
  bool failed_ = false;
  bool told_ = false;
  std::string reason_;
};

// Which of the NICs the flow takes, so that each has flows by its share of the speed of all.
size_t NicOfFlow(const std::vector<Nic>& nics, size_t flow);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_CONNECTOR_H_
