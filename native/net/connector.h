// SPDX-License-Identifier: Apache-2.0
//
// Connects all flows of a new connection. It advances with each call of NCCL's connect.
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
  // Starts `flows` bulk flows, spread over the device's NICs by speed. There are fewer if one of
  // the two processes is short of file descriptors.
  Connector(const ConnectionContext& context, const Device& device, const Invitation& invitation,
            std::shared_ptr<Pool> pool, int flows);

  enum class State { kWorking, kReady, kFailed };
  State Step();
  // Returns the sender once Step returned kReady. Returns null if the sender cannot start; then the
  // state is kFailed.
  Sender* Take();
  // Returns why it failed.
  const std::string& reason() const { return reason_; }
  abi::Result result() const { return result_; }
  // Marks the connector as failed after one of its calls threw. The exception was logged already.
  void FailByException() noexcept;
  // Returns true at the first call only, so that the failure is logged once.
  bool FirstReport() { return !std::exchange(reported_, true); }

  const Token& token() const { return invitation_.token; }

 private:
  void Start(size_t flows);
  State Fail(abi::Result result, std::string reason);

  ConnectionContext context_;
  std::string device_;
  std::shared_ptr<Pool> pool_;
  Invitation invitation_;
  std::vector<Nic> nics_;
  std::vector<Dialer> dialers_;
  std::vector<int64_t> retry_ns_;
  int64_t begun_ns_;
  int64_t pause_ns_;
  bool failed_ = false;
  bool reported_ = false;
  abi::Result result_ = abi::kSuccess;
  std::string reason_;
};

// Returns the index of the NIC for a bulk flow. Each NIC gets flows in proportion to its speed.
size_t NicOfFlow(const std::vector<Nic>& nics, size_t flow);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_CONNECTOR_H_
