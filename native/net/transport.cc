// SPDX-License-Identifier: Apache-2.0
#include "net/transport.h"

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "net/clock.h"
#include "net/connector.h"
#include "net/door.h"
#include "net/pool.h"
#include "net/pool_size.h"
#include "net/receiver.h"
#include "net/sender.h"

namespace nccltune::net {

// What NCCL listens with; the door stays while a connection that came through it does.
class Listener {
 public:
  explicit Listener(std::shared_ptr<Door> door) : door_(std::move(door)) {}
  ~Listener() { door_->CloseToNew(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const std::shared_ptr<Door>& door() const { return door_; }

 private:
  std::shared_ptr<Door> door_;
};

namespace {

// Connects that are under way, by the number that stands in their handle: what comes from a peer is
// never a pointer of ours.
class Attempts {
 public:
  static Attempts& Get() {
    static Attempts* const attempts = new Attempts;
    return *attempts;
  }

  uint64_t Add(std::unique_ptr<Connector> connector) {
    const std::scoped_lock lock(mutex_);
    attempts_[++last_] = std::move(connector);
    return last_;
  }

  std::shared_ptr<Connector> Find(uint64_t number) {
    const std::scoped_lock lock(mutex_);
    const auto found = attempts_.find(number);
    return found == attempts_.end() ? nullptr : found->second;
  }

  void Remove(uint64_t number) {
    const std::scoped_lock lock(mutex_);
    attempts_.erase(number);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Connector>> attempts_;
  uint64_t last_ = 0;
};

// Runs what may throw: memory is all that can be missing.
template <typename Do>
abi::Result Guarded(const Log& log, const char* what, Do what_to_do) {
  try {
    return what_to_do();
  } catch (const std::exception& error) {
    log.Warn(std::string(what) + ": " + error.what());
    return abi::kSystemError;
  }
}

abi::Result Begin(const Surroundings& surroundings, const Device& device, Handle handle,
                  uint64_t* number) {
  const std::optional<Invitation> invitation = ReadHandle(handle);
  if (!invitation) {
    surroundings.log.Warn(
        "connect: the peer's handle is not nccltune's: all ranks need the same "
        "NCCL_NET_PLUGIN");
    return abi::kInvalidUsage;
  }
  if (invitation->release != kWireRelease) {
    surroundings.log.Warn("connect: the peer's wire format is release " +
                          std::to_string(invitation->release) + ", ours " +
                          std::to_string(kWireRelease) +
                          ": install one version of nccltune on all nodes");
    return abi::kInvalidUsage;
  }
  const NetSettings& settings = surroundings.settings;
  std::shared_ptr<Pool> pool = Pool::Get(PoolThreads(settings));
  if (pool == nullptr) {
    surroundings.log.Warn("connect: no threads can be made");
    return abi::kSystemError;
  }
  const int flows = FlowsOf(settings, pool->threads());
  *number = Attempts::Get().Add(
      std::make_unique<Connector>(surroundings, device, *invitation, std::move(pool), flows));
  SetAttempt(handle, *number);
  return abi::kSuccess;
}

}  // namespace

abi::Result Listen(const Surroundings& surroundings, const Device& device, Handle handle,
                   Listener** listener) noexcept {
  *listener = nullptr;
  return Guarded(surroundings.log, "listen", [&] {
    std::string why;
    std::shared_ptr<Door> door = Door::Open(surroundings, device, &why);
    if (door == nullptr) {
      surroundings.log.Warn("listen: " + why);
      return abi::kSystemError;
    }
    WriteHandle(door->invitation(), handle);
    *listener = std::make_unique<Listener>(std::move(door)).release();
    return abi::kSuccess;
  });
}

abi::Result Connect(const Surroundings& surroundings, const Device& device, Handle handle,
                    Sender** sender) noexcept {
  *sender = nullptr;
  return Guarded(surroundings.log, "connect", [&] {
    uint64_t number = AttemptOf(handle);
    if (number == 0) {
      const abi::Result begun = Begin(surroundings, device, handle, &number);
      if (begun != abi::kSuccess) return begun;
    }
    const std::shared_ptr<Connector> connector = Attempts::Get().Find(number);
    if (connector == nullptr) return abi::kInternalError;
    const Connector::State state = connector->Step();
    if (state == Connector::State::kWorking) return abi::kSuccess;
    // What has failed stays, and says the same to every later call.
    if (state == Connector::State::kFailed) {
      if (connector->FirstTold()) {
        surroundings.log.Warn("connect on " + device.name + " " + connector->reason());
      }
      return abi::kRemoteError;
    }
    Attempts::Get().Remove(number);
    *sender = connector->Take();
    return abi::kSuccess;
  });
}

abi::Result Accept(Listener* listener, Receiver** receiver) noexcept {
  *receiver = nullptr;
  const std::shared_ptr<Door>& door = listener->door();
  const Surroundings& surroundings = door->surroundings();
  return Guarded(surroundings.log, "accept", [&] {
    std::optional<Party> party = door->TakeParty(NowNs());
    if (!party) return abi::kSuccess;
    std::shared_ptr<Pool> pool = Pool::Get(PoolThreads(surroundings.settings));
    if (pool == nullptr) {
      surroundings.log.Warn("accept: no threads can be made");
      return abi::kSystemError;
    }
    auto made = std::make_unique<Receiver>(Receiver::Parts{.surroundings = surroundings,
                                                           .pool = std::move(pool),
                                                           .door = door,
                                                           .party = std::move(*party),
                                                           .device = door->device()});
    *receiver = made.release();
    return abi::kSuccess;
  });
}

abi::Result Send(Sender* sender, const void* data, size_t bytes, Request** request) noexcept {
  *request = nullptr;
  return Guarded(sender->surroundings().log, "isend",
                 [&] { return sender->Send(data, bytes, request); });
}

abi::Result Receive(Receiver* receiver, void* data, size_t bytes, Request** request) noexcept {
  *request = nullptr;
  return Guarded(receiver->surroundings().log, "irecv",
                 [&] { return receiver->Post(data, bytes, request); });
}

abi::Result Test(Request* request, bool* done, size_t* bytes) noexcept {
  *done = false;
  const Log& log = request->sender != nullptr ? request->sender->surroundings().log
                                              : request->receiver->surroundings().log;
  return Guarded(log, "test", [&] {
    return request->sender != nullptr ? request->sender->Test(request, done, bytes)
                                      : request->receiver->Test(request, done, bytes);
  });
}

abi::Result Close(Listener* listener) noexcept {
  delete listener;
  return abi::kSuccess;
}

abi::Result Close(Sender* sender) noexcept {
  delete sender;
  return abi::kSuccess;
}

abi::Result Close(Receiver* receiver) noexcept {
  delete receiver;
  return abi::kSuccess;
}

}  // namespace nccltune::net
