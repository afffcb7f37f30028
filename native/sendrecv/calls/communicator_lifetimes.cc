// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/calls/communicator_lifetimes.h"

#include <algorithm>
#include <iterator>
#include <thread>

#include "sendrecv/group/watch.h"

namespace nccltune::sendrecv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kReceiverWait = std::chrono::seconds(30);
constexpr auto kReceiverWaitAtExit = std::chrono::seconds(5);

// The watcher has a communicator's lock for moments only. A call of another thread that waits for
// its peer has it for longer, perhaps for ever.
constexpr auto kLockWait = std::chrono::seconds(1);

bool AnyUnreceivedSends(const std::vector<std::shared_ptr<Communicator>>& communicators) {
  return std::ranges::any_of(communicators, [limit = Clock::now() + kLockWait](const auto& each) {
    return each->HasUnreceivedSends(limit);
  });
}

void Sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

bool CommunicatorTable::Add(const std::shared_ptr<Communicator>& communicator, nccl::Comm comm) {
  int rank = -1;
  int ranks = 0;
  if (native_.CommUserRank(comm, &rank) != abi::kSuccess) return false;
  if (native_.CommCount(comm, &ranks) != abi::kSuccess) ranks = 0;
  communicator->Begin(rank);
  const std::unique_lock lock(mutex_);
  entries_[comm] = {.communicator = communicator, .ranks = ranks};
  ++changes_;
  return true;
}

const CommunicatorTable::Entry& CommunicatorTable::Find(nccl::Comm comm) {
  // A thread usually looks up the same communicator again, so keep its last result.
  struct LastFound {
    nccl::Comm comm = nullptr;
    uint64_t changes = 0;
    Entry entry;
  };
  thread_local LastFound last;
  if (last.comm == comm && last.changes == changes()) return last.entry;
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(comm);
  last = {.comm = comm,
          .changes = changes(),
          .entry = found == entries_.end() ? Entry{} : found->second};
  return last.entry;
}

std::shared_ptr<Communicator> CommunicatorTable::Remove(nccl::Comm comm) {
  const std::unique_lock lock(mutex_);
  const auto found = entries_.find(comm);
  if (found == entries_.end()) return nullptr;
  std::shared_ptr<Communicator> taken = std::move(found->second.communicator);
  entries_.erase(found);
  ++changes_;
  return taken;
}

nccl::Comm* SplitChildren::AddChild(std::shared_ptr<Communicator> made, nccl::Comm parent,
                                    nccl::Comm* wanted) {
  // Without the library, NCCL sets the program's handle to null until the child is complete. So set
  // it to null here.
  *wanted = nullptr;
  const std::scoped_lock lock(mutex_);
  children_.push_back(
      {.made = std::move(made), .parent = parent, .wanted = wanted, .handle = nullptr});
  ++count_;
  return &children_.back().handle;
}

void SplitChildren::BeginMade(nccl::Comm failed) {
  const std::scoped_lock lock(mutex_);
  for (auto each = children_.begin(); each != children_.end();) {
    // Destroy a child that NCCL could not create: peers wait for its rank as long as it exists.
    if (each->parent == failed) each->made = nullptr;
    nccl::Comm handle = each->Handle();
    if (handle == nullptr) {
      ++each;
      continue;
    }
    if (each->made != nullptr) begin_(each->made, handle);
    each->Publish();
    each = children_.erase(each);
    --count_;
  }
}

SplitChildren::KeptChildren SplitChildren::End(nccl::Comm parent) {
  const std::scoped_lock lock(mutex_);
  std::list<Child> ending;
  for (auto each = children_.begin(); each != children_.end();) {
    const auto next = std::next(each);
    if (each->parent == parent) {
      each->made = nullptr;
      ending.splice(ending.end(), children_, each);
      --count_;
    }
    each = next;
  }
  return KeptChildren(std::move(ending));
}

SplitChildren::KeptChildren::~KeptChildren() {
  for (const Child& each : children_) {
    if (each.Handle() != nullptr) each.Publish();
  }
}

void PendingNonblocking::AddCommunicator(std::shared_ptr<Communicator> made, nccl::Comm comm) {
  const std::scoped_lock lock(mutex_);
  new_communicators_[comm] = std::move(made);
  ++count_;
}

void PendingNonblocking::AddGroup(const std::shared_ptr<PendingGroup>& group) {
  if (group == nullptr) return;
  const std::scoped_lock lock(mutex_);
  for (nccl::Comm each : group->Comms()) {
    groups_[each] = group;
    ++count_;
  }
}

nccl::Result PendingNonblocking::Progress(nccl::Comm comm) {
  if (!Any()) return abi::kSuccess;
  const std::scoped_lock lock(mutex_);
  if (const auto found_new = new_communicators_.find(comm); found_new != new_communicators_.end()) {
    const nccl::Result state = StateOf(comm);
    if (state != abi::kSuccess) return state;
    begin_(found_new->second, comm);
    new_communicators_.erase(found_new);
    --count_;
  }
  const auto found = groups_.find(comm);
  if (found == groups_.end()) return abi::kSuccess;
  const std::shared_ptr<PendingGroup> group = found->second;
  nccl::Result result = abi::kSuccess;
  for (nccl::Comm each : group->Comms()) {
    if (result == abi::kSuccess) result = StateOf(each);
  }
  if (result == abi::kInProgress) return result;
  Forget(*group);
  if (result == abi::kSuccess) return group->Finish();
  group->Abandon("NCCL has failed");
  return result;
}

void PendingNonblocking::Forget(nccl::Comm comm) {
  if (!Any()) return;
  const std::scoped_lock lock(mutex_);
  count_ -= new_communicators_.erase(comm);
  const auto found = groups_.find(comm);
  if (found == groups_.end()) return;
  const std::shared_ptr<PendingGroup> group = found->second;
  Forget(*group);
  group->Abandon("a communicator of the same group has ended");
}

void PendingNonblocking::Forget(const PendingGroup& group) {
  for (nccl::Comm each : group.Comms()) count_ -= groups_.erase(each);
}

nccl::Result PendingNonblocking::StateOf(nccl::Comm comm) const {
  nccl::Result state = abi::kSuccess;
  const nccl::Result result = native_.CommGetAsyncError(comm, &state);
  return result == abi::kSuccess ? state : result;
}

void RetiredCommunicators::Add(const std::shared_ptr<Communicator>& communicator) {
  if (communicator == nullptr) return;
  const std::scoped_lock lock(mutex_);
  retired_.push_back(communicator);
}

void RetiredCommunicators::Release(std::chrono::milliseconds patience) {
  const auto began = Clock::now();
  while (!ReleaseOnce()) {
    const auto waited = Clock::now() - began;
    const bool more = patience.count() != 0 && waited < kReceiverWait && HaveUnreceivedSends();
    if (waited >= patience && !more) return;
    Sleep();
  }
}

std::vector<std::shared_ptr<Communicator>> RetiredCommunicators::All() {
  const std::scoped_lock lock(mutex_);
  return retired_;
}

bool RetiredCommunicators::HaveUnreceivedSends() { return AnyUnreceivedSends(All()); }

bool RetiredCommunicators::ReleaseOnce() {
  // The list keeps what is being closed, so that another thread that ends it waits as well.
  auto closed = All();
  std::erase_if(
      closed, [limit = Clock::now() + kLockWait](const auto& each) { return !each->Close(limit); });
  for (const auto& each : closed) Watcher::Get().Remove(each);
  const std::scoped_lock lock(mutex_);
  std::erase_if(retired_,
                [&](const auto& each) { return std::ranges::find(closed, each) != closed.end(); });
  return retired_.empty();
}

void WaitForReceivers() {
  const auto until = Clock::now() + kReceiverWaitAtExit;
  const auto all = Watcher::Get().All();
  while (AnyUnreceivedSends(all) && Clock::now() < until) Sleep();
}

}  // namespace nccltune::sendrecv
