// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "net/connection_stats.h"
#include "net/pool.h"
#include "net/socket.h"

namespace nccltune::net {

// The base of the flows of both ends: a socket that is up or down, served by one pool thread.
// `Owner` is Sender or Receiver.
template <typename Owner>
class FlowBase : public Task {
 public:
  // Starts the flow. All flows of the owner must have been created. Returns 0 or the error of
  // epoll_ctl.
  [[nodiscard]] int Start(uint32_t events) {
    events_ = events;
    number_ = worker_->Add(this);
    return Watch(socket_.fd());
  }
  // Stops the flow. No pool thread calls the flow afterwards.
  void Stop() { worker_->Remove(number_); }

  void Ready(uint32_t events) override { epoll_events_ |= events; }
  int64_t NextNs() const override {
    if (owner_.failed()) return INT64_MAX;
    return up_ ? std::min(NextUpNs(), path_.NextNs()) : NextDownNs();
  }
  bool IsSaturated(int64_t now_ns) const override { return owner_.IsDeep(now_ns); }
  void OnException(const char* what) noexcept override { owner_.FailByException(what); }

  PoolThread& worker() const { return *worker_; }
  bool up() const { return up_.load(); }

 protected:
  FlowBase(Owner& owner, std::shared_ptr<PoolThread> worker, Descriptor socket)
      : owner_(owner),
        stats_(owner.stats().NextFlow()),
        socket_(std::move(socket)),
        path_(owner.context().settings.path_timeout_ms),
        worker_(std::move(worker)) {
    stats_.CameUp(socket_.fd());
  }

  virtual bool WorkUp(int64_t now_ns) = 0;
  virtual int64_t NextUpNs() const { return INT64_MAX; }
  virtual int64_t NextDownNs() const = 0;
  // Returns whether data waits for its delivery.
  virtual bool waits() const { return false; }
  // Takes the flow down. `bye`: the peer closed the flow regularly.
  virtual void Down(int64_t now_ns, bool bye, const SocketEnd& end) = 0;

  // Does what is due at this time. Takes the flow down if the connection has failed, or if the
  // peer's host does not answer. Returns whether the connection works.
  bool Tick(int64_t now_ns) {
    if (now_ns >= tick_ns_) {
      tick_ns_ = now_ns + kBetweenTicksNs;
      owner_.Tick(now_ns);
      stats_.Sample(now_ns, socket_.fd(), waits());
    }
    if (owner_.failed()) {
      if (socket_) Down(now_ns, false, {"the connection has failed"});
      return false;
    }
    if (up_ && path_.Due(now_ns)) {
      const std::optional<PathFacts> facts = ReadPathFacts(socket_.fd());
      if (facts && path_.IsDead(now_ns, *facts)) {
        Down(now_ns, false, {"the peer's host does not answer", true});
      }
    }
    return true;
  }

  // Counts the end of the flow's socket.
  void CountEnd(bool died) {
    if (died) ++owner_.counters().flow_ends;
    stats_.WentDown(died);
  }

  // Watches a socket in place of the last one. Returns 0 or the error of epoll_ctl.
  int Watch(int fd, uint32_t more_events = 0) {
    return worker_->Watch(number_, fd, events_ | more_events);
  }

  Owner& owner_;
  FlowStats stats_;
  Descriptor socket_;
  PathWatch path_;
  uint32_t epoll_events_ = 0;  // events that epoll reported since they were last handled
  std::atomic<bool> up_ = true;

 private:
  std::shared_ptr<PoolThread> worker_;
  uint64_t number_ = 0;
  uint32_t events_ = 0;
  int64_t tick_ns_ = 0;
};

}  // namespace nccltune::net
