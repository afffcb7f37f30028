// SPDX-License-Identifier: Apache-2.0
// Connects all flows of a new connection. A flow is one TCP connection; several flows form one
// connection of NCCL. Each call of NCCL's connect advances the attempt.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/dialer.h"
#include "net/pool.h"
#include "net/sender.h"
#include "net/transport.h"
#include "net/wire.h"

namespace nccltune::net {

class Connector {
 public:
  // Starts the express flow and `flows` bulk flows, spread over the device's NICs by speed. Starts
  // fewer flows if this process is short of file descriptors. If the peer's process is short of
  // them, Step starts again with fewer flows.
  Connector(const ConnectionContext& context, const Device& device, const Invitation& invitation,
            std::shared_ptr<Pool> pool, int flows);

  enum class State { kWorking, kReady, kFailed };
  State Step();
  // Call Take after Step has returned kReady. Returns the sender, or null if the sender cannot
  // start. After null, the state is kFailed.
  Sender* Take();
  // Returns why the attempt has failed.
  const std::string& reason() const { return reason_; }
  abi::Result result() const { return result_; }
  // Marks the connector as failed after one of its functions threw. The caller has logged the
  // exception.
  void FailByException() noexcept;
  // Returns true only at the first call, so that the failure is logged once.
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

// Returns the index of the NIC for a bulk flow (numbered from 0). Each NIC gets flows in proportion
// to its speed.
size_t NicOfFlow(const std::vector<Nic>& nics, size_t flow);

}  // namespace nccltune::net
