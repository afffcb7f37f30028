// SPDX-License-Identifier: Apache-2.0
#include "net/transport.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "common/contain.h"
#include "common/text.h"
#include "net/acceptor.h"
#include "net/connector.h"
#include "net/descriptors.h"
#include "net/kernel_facts.h"
#include "net/pool.h"
#include "net/receiver.h"
#include "net/sender.h"

namespace nccltune::net {
namespace {

// A connect without an owner is cancelled if NCCL has not continued it for this long.
constexpr int64_t kForgottenNs = 60 * kNsPerSecond;
constexpr int64_t kBetweenSweepsNs = kNsPerSecond;

// Incomplete connects, indexed by the number in their handle. The handle crosses the network, so it
// must not contain a pointer.
class Attempts {
 public:
  struct Attempt {
    std::shared_ptr<Connector> connector;
    uint64_t owner = ConnectionContext::kProcess;
    int64_t asked_ns = 0;
  };

  static Attempts& Get() {
    static Attempts* const attempts = new Attempts;
    return *attempts;
  }

  uint64_t Add(std::shared_ptr<Connector> connector, uint64_t owner) {
    const std::scoped_lock lock(mutex_);
    attempts_[last_ + 1] = {std::move(connector), owner, NowNs()};
    return ++last_;
  }

  // Returns the connector of an attempt. Returns null if the attempt was cancelled by
  // GiveUpForgotten; `*given_up` is true then. Also returns null if there is no such attempt.
  std::shared_ptr<Connector> Find(uint64_t number, bool* given_up) {
    const std::scoped_lock lock(mutex_);
    const auto found = attempts_.find(number);
    *given_up = found != attempts_.end() && found->second.connector == nullptr;
    if (found == attempts_.end()) return nullptr;
    found->second.asked_ns = NowNs();
    return found->second.connector;
  }

  void Remove(uint64_t number) {
    RemoveIf([&](const auto& each) { return each.first == number; });
  }
  void RemoveOwned(uint64_t owner) {
    RemoveIf([&](const auto& each) { return each.second.owner == owner; });
  }
  // Cancels attempts without an owner that NCCL has not continued for a long time. Keeps their
  // numbers: a process that was only stopped for that time may continue, and its attempt then
  // starts over.
  void GiveUpForgotten(int64_t now_ns) {
    if (now_ns - swept_ns_.load(std::memory_order_relaxed) < kBetweenSweepsNs) return;
    swept_ns_.store(now_ns, std::memory_order_relaxed);
    for (;;) {
      // Declared before the lock, so that the connector is destroyed after unlocking.
      std::shared_ptr<Connector> given_up;
      const std::scoped_lock lock(mutex_);
      const auto found = std::ranges::find_if(attempts_, [&](const auto& each) {
        const Attempt& attempt = each.second;
        return attempt.owner == ConnectionContext::kProcess && attempt.connector != nullptr &&
               now_ns - attempt.asked_ns > kForgottenNs;
      });
      if (found == attempts_.end()) return;
      given_up = std::move(found->second.connector);
    }
  }

 private:
  // Removes attempts. Destroys each of them without holding the lock, because destroying the last
  // owner of the pool joins threads. Allocates no memory.
  template <typename Wanted>
  void RemoveIf(const Wanted& wanted) {
    for (;;) {
      std::map<uint64_t, Attempt>::node_type removed;
      {
        const std::scoped_lock lock(mutex_);
        const auto found = std::ranges::find_if(attempts_, wanted);
        if (found == attempts_.end()) return;
        removed = attempts_.extract(found);
      }
    }
  }

  std::mutex mutex_;
  std::map<uint64_t, Attempt> attempts_;
  uint64_t last_ = 0;
  std::atomic<int64_t> swept_ns_ = 0;
};

}  // namespace

// A listener. NCCL holds a pointer to it. The acceptor lives at least as long as any of its
// connections.
class Listener {
 public:
  explicit Listener(std::shared_ptr<Acceptor> acceptor) : resources_{std::move(acceptor), nullptr} {
    const std::scoped_lock lock(Mutex());
    All().insert(this);
  }
  ~Listener() {
    const std::scoped_lock lock(Mutex());
    All().erase(this);
    if (resources_.acceptor != nullptr) resources_.acceptor->CloseToNew();
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  struct Resources {
    std::shared_ptr<Acceptor> acceptor;
    std::shared_ptr<Pool> pool;  // null until the first accept
  };
  // A null acceptor means that the communicator has ended.
  Resources resources() {
    const std::scoped_lock lock(Mutex());
    return resources_;
  }
  // Keeps the pool alive while NCCL calls accept. Creating a pool for each call would be slow.
  void SetPool(const std::shared_ptr<Pool>& pool) {
    const std::scoped_lock lock(Mutex());
    if (resources_.acceptor != nullptr) resources_.pool = pool;
  }

  // Releases the resources of a communicator's listeners. NCCL does not close the listeners of an
  // aborted communicator (recvProxyFree, up to 2.30).
  static void RetireOwned(uint64_t owner) {
    for (;;) {
      // The resources are destroyed after unlocking, because ending a pool joins threads.
      Resources retired;
      {
        const std::scoped_lock lock(Mutex());
        const auto found = std::ranges::find_if(All(), [&](const Listener* listener) {
          return listener->resources_.acceptor != nullptr &&
                 listener->resources_.acceptor->context().owner == owner;
        });
        if (found == All().end()) return;
        retired = std::exchange((*found)->resources_, Resources());
      }
      retired.acceptor->CloseToNew();
    }
  }

 private:
  // The mutex and the set are never destroyed: listeners may be closed during process exit.
  static std::mutex& Mutex() {
    static std::mutex* const mutex = new std::mutex;
    return *mutex;
  }
  static std::set<Listener*>& All() {
    static std::set<Listener*>* const all = new std::set<Listener*>;
    return *all;
  }

  Resources resources_;
};

namespace {

// Runs `what_to_do`. Turns an exception, usually std::bad_alloc, into a log line and kSystemError.
// `failed` is called with the exception's text.
template <typename Do, typename Failed>
abi::Result Guarded(const Log& log, const char* what, const Do& what_to_do,
                    const Failed& failed) noexcept {
  abi::Result result = abi::kSystemError;
  Contain([&] { result = what_to_do(); },
          [&](const char* error) {
            failed(error);
            Contain([&] { log.Warn(std::string(what) + ": " + error); },
                    [&](const char* /*again*/) { log.Warn(error); });
            result = abi::kSystemError;
          });
  return result;
}

template <typename Do>
abi::Result Guarded(const Log& log, const char* what, const Do& what_to_do) noexcept {
  return Guarded(log, what, what_to_do, [](const char* /*error*/) {});
}

// Returns the pool of the process. Returns null, after a log line, if no thread could be created.
std::shared_ptr<Pool> GetPool(const ConnectionContext& context, const char* call) {
  const int wanted = PoolThreads(context.settings);
  // A thread uses two file descriptors.
  const auto allowed = static_cast<int>(DescriptorShare(2 * static_cast<uint64_t>(wanted), 2) / 2);
  int error = 0;
  std::shared_ptr<Pool> pool = Pool::Get(allowed, &error);
  if (pool == nullptr && IsDescriptorShortage(error)) {
    context.log.Warn(ShortageText(call, error));
  } else if (pool == nullptr) {
    context.log.Warn(std::string(call) + ": no threads can be made: " + ErrorWords(error));
  }
  return pool;
}

abi::Result Begin(const ConnectionContext& context, const Device& device, Handle handle,
                  uint64_t* number) {
  const std::optional<Invitation> invitation = ReadHandle(handle);
  if (!invitation) {
    context.log.Warn(
        "connect: the peer's handle is not nccltune's: all ranks need the same "
        "NCCL_NET_PLUGIN");
    return abi::kInvalidUsage;
  }
  if (invitation->release != kWireRelease) {
    context.log.Warn("connect: the peer's wire format is release " +
                     std::to_string(invitation->release) + ", ours " +
                     std::to_string(kWireRelease) +
                     ": install one version of nccltune on all nodes");
    return abi::kInvalidUsage;
  }
  std::shared_ptr<Pool> pool = GetPool(context, "connect");
  if (pool == nullptr) return abi::kSystemError;
  const int flows = FlowsOf(context.settings, pool->threads());
  *number = Attempts::Get().Add(
      std::make_shared<Connector>(context, device, *invitation, std::move(pool), flows),
      context.owner);
  SetAttempt(handle, *number);
  return abi::kSuccess;
}

// Sets `*connector` to the attempt that the handle names, or to a new attempt if the handle names
// none or a cancelled one. Returns an error if the handle names an unknown attempt or another
// listener's attempt, or if no attempt can be started.
abi::Result FindOrBegin(const ConnectionContext& context, const Device& device, Handle handle,
                        uint64_t* number, std::shared_ptr<Connector>* connector) {
  bool given_up = false;
  *number = AttemptOf(handle);
  if (*number != 0) *connector = Attempts::Get().Find(*number, &given_up);
  if (*number == 0 || given_up) {
    if (given_up) Attempts::Get().Remove(*number);
    const abi::Result begun = Begin(context, device, handle, number);
    if (begun != abi::kSuccess) return begun;
    *connector = Attempts::Get().Find(*number, &given_up);
  }
  if (*connector == nullptr) return abi::kInternalError;
  // The attempt's number also passes through the peer's host, so it is not trusted. Only the token
  // proves that the attempt belongs to this handle.
  return SameToken((*connector)->token(), TokenOf(handle)) ? abi::kSuccess : abi::kInternalError;
}

}  // namespace

uint64_t NewOwner() noexcept {
  static constinit std::atomic<uint64_t> last = ConnectionContext::kProcess;
  return ++last;
}

void Release(uint64_t owner) noexcept {
  Contain([&] {
    Attempts::Get().RemoveOwned(owner);
    Listener::RetireOwned(owner);
  });
}

void ReleaseForgotten(int64_t now_ns) noexcept {
  Contain([&] { Attempts::Get().GiveUpForgotten(now_ns); });
}

abi::Result Listen(const ConnectionContext& context, const Device& device, Handle handle,
                   Listener** listener) noexcept {
  *listener = nullptr;
  ReleaseForgotten(NowNs());
  return Guarded(context.log, "listen", [&] {
    std::string why;
    std::shared_ptr<Acceptor> acceptor = Acceptor::Open(context, device, &why);
    if (acceptor == nullptr) {
      context.log.Warn("listen: " + why);
      return abi::kSystemError;
    }
    const Invitation& invitation = acceptor->invitation();
    auto made = std::make_unique<Listener>(acceptor);
    WriteHandle(invitation, handle);
    *listener = made.release();
    return abi::kSuccess;
  });
}

abi::Result Connect(const ConnectionContext& context, const Device& device, Handle handle,
                    Sender** sender) noexcept {
  *sender = nullptr;
  ReleaseForgotten(NowNs());
  uint64_t number = 0;
  std::shared_ptr<Connector> connector;
  return Guarded(
      context.log, "connect",
      [&] {
        const abi::Result found = FindOrBegin(context, device, handle, &number, &connector);
        if (found != abi::kSuccess) return found;
        const Connector::State state = connector->Step();
        if (state == Connector::State::kWorking) return abi::kSuccess;
        if (state == Connector::State::kReady) {
          *sender = connector->Take();
          if (*sender != nullptr) {
            Attempts::Get().Remove(number);
            return abi::kSuccess;
          }
        }
        // A failed connector is kept and returns the same result to every later call.
        if (connector->FirstReport()) {
          context.log.Warn("connect on " + device.name + " " + connector->reason());
        }
        return connector->result();
      },
      [&](const char* /*error*/) {
        if (connector != nullptr) connector->FailByException();
      });
}

abi::Result Accept(Listener* listener, Receiver** receiver) noexcept {
  *receiver = nullptr;
  ReleaseForgotten(NowNs());
  const auto [acceptor, known_pool] = listener->resources();
  if (acceptor == nullptr) return abi::kInvalidUsage;
  const ConnectionContext& context = acceptor->context();
  uint64_t connection = 0;
  return Guarded(
      context.log, "accept",
      [&] {
        // Create the threads before the flows take the file descriptors.
        std::shared_ptr<Pool> pool = known_pool;
        if (pool == nullptr) {
          pool = GetPool(context, "accept");
          if (pool == nullptr) return abi::kSystemError;
          listener->SetPool(pool);
        }
        std::optional<PendingConnection> taken = acceptor->TakeConnection(NowNs());
        if (!taken) {
          const std::optional<std::string> failure = acceptor->TakeFailure();
          if (!failure) return abi::kSuccess;
          context.log.Warn(*failure);
          return abi::kSystemError;
        }
        connection = taken->connection;
        auto made = std::make_unique<Receiver>(Receiver::Resources{.context = context,
                                                                   .pool = std::move(pool),
                                                                   .acceptor = acceptor,
                                                                   .pending = std::move(*taken),
                                                                   .device = acceptor->device()});
        if (const int error = made->Start(); error != 0) {
          context.log.Warn("accept: epoll_ctl: " + ErrorWords(error));
          return abi::kSystemError;
        }
        *receiver = made.release();
        return abi::kSuccess;
      },
      // Without this call, the peer would reconnect to the failed connection forever.
      [&](const char* /*error*/) { acceptor->StopServing(connection); });
}

abi::Result Send(Sender* sender, const void* data, size_t bytes,
                 TransferRequest** request) noexcept {
  *request = nullptr;
  return Guarded(
      sender->context().log, "isend", [&] { return sender->Send(data, bytes, request); },
      [&](const char* error) {
        *request = nullptr;
        sender->FailByException(error);
      });
}

abi::Result Receive(Receiver* receiver, void* data, size_t bytes,
                    TransferRequest** request) noexcept {
  *request = nullptr;
  return Guarded(
      receiver->context().log, "irecv", [&] { return receiver->Post(data, bytes, request); },
      [&](const char* error) {
        *request = nullptr;
        receiver->FailByException(error);
      });
}

abi::Result Test(TransferRequest* request, bool* done, size_t* bytes) noexcept {
  *done = false;
  Sender* const sender = request->sender;
  Receiver* const receiver = request->receiver;
  const Log& log = sender != nullptr ? sender->context().log : receiver->context().log;
  return Guarded(
      log, "test",
      [&] {
        return sender != nullptr ? sender->Test(request, done, bytes)
                                 : receiver->Test(request, done, bytes);
      },
      [&](const char* error) {
        sender != nullptr ? sender->FailByException(error) : receiver->FailByException(error);
      });
}

abi::Result Close(Listener* listener) noexcept {
  delete listener;
  ReleaseForgotten(NowNs());
  return abi::kSuccess;
}

abi::Result Close(Sender* sender) noexcept {
  delete sender;
  ReleaseForgotten(NowNs());
  return abi::kSuccess;
}

abi::Result Close(Receiver* receiver) noexcept {
  delete receiver;
  ReleaseForgotten(NowNs());
  return abi::kSuccess;
}

}  // namespace nccltune::net
