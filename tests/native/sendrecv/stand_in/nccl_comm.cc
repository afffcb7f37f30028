// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/nccl_comm.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sendrecv/stand_in/cuda_options.h"
#include "sendrecv/stand_in/nccl_kernel.h"

namespace nccltune::soft {
namespace {

struct Comms {
  std::mutex mutex;
  std::map<const ncclComm*, std::shared_ptr<Comm>> by_handle;
  std::string failure;
};

Comms& AllComms() {
  static auto* const comms = new Comms;
  return *comms;
}

// Returns false if the communicator was aborted meanwhile.
template <typename Condition>
bool Await(const Comm& comm, const Condition& condition) {
  Patience patience;
  while (!condition()) {
    if (comm.aborted) return false;
    patience.Sleep();
  }
  return true;
}

}  // namespace

ncclResult_t Fail(ncclResult_t result, const std::string& why) {
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  all.failure = why;
  return result;
}

const char* LastFailure() {
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  thread_local std::string last;
  last = all.failure;
  return last.c_str();
}

std::shared_ptr<Comm> NewComm() {
  CUcontext context = nullptr;
  if (cuInit(0) != kCudaSuccess || cuCtxGetCurrent(&context) != kCudaSuccess) return nullptr;
  if (context == nullptr) {
    if (cuDevicePrimaryCtxRetain(&context, 0) != kCudaSuccess) return nullptr;
    cuCtxSetCurrent(context);
  }
  auto comm = std::make_shared<Comm>();
  comm->context = context;
  cuCtxGetDevice(&comm->gpu);
  if (cuEventCreate(&comm->last, 0) != kCudaSuccess) return nullptr;
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  all.by_handle[HandleOf(comm)] = comm;
  return comm;
}

ncclComm_t HandleOf(const std::shared_ptr<Comm>& comm) {
  return reinterpret_cast<ncclComm_t>(comm.get());
}

std::shared_ptr<Comm> FindComm(const ncclComm* handle) {
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.by_handle.find(handle);
  return found == all.by_handle.end() ? nullptr : found->second;
}

void ForgetComm(const std::shared_ptr<Comm>& comm) {
  {
    Comms& all = AllComms();
    const std::scoped_lock lock(all.mutex);
    all.by_handle.erase(HandleOf(comm));
  }
  const std::scoped_lock lock(comm->mutex);
  cuEventDestroy_v2(comm->last);
  comm->kernels.clear();
}

ncclResult_t Join(Comm& comm, const Place& place, int ranks, int rank) {
  if (rank < 0 || rank >= ranks) return Fail(kNcclInvalidArgument, "no such rank");
  comm.segment = Segment::Open(place, ranks);
  if (comm.segment == nullptr) {
    return Fail(kNcclSystemError, "the unique id's process is gone, or ranks differ in number");
  }
  comm.rank = rank;
  comm.ranks = ranks;
  Member& mine = comm.segment->member(rank);
  int none = 0;
  if (!mine.joined.compare_exchange_strong(none, 1)) {
    return Fail(kNcclInvalidUsage, "rank " + std::to_string(rank) + " comes twice");
  }
  mine.gpu = comm.gpu;
  mine.joined = 2;
  for (int each = 0; each < ranks; ++each) {
    Member& other = comm.segment->member(each);
    if (!Await(comm, [&] { return other.joined == 2; })) return kNcclInternalError;
  }
  for (int each = 0; each < ranks; ++each) {
    if (each == rank || comm.segment->member(each).gpu != comm.gpu) continue;
    return Fail(kNcclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) +
                                       " and rank " + std::to_string(each));
  }
  comm.ready = true;
  return kNcclSuccess;
}

ncclResult_t JoinGrown(Comm& parent, uint64_t round, const Place* place, int ranks, Comm& made) {
  const auto ballot = [&](int rank) -> Ballot& { return parent.segment->member(rank).grow; };
  int leader = parent.rank;
  if (place != nullptr) {
    ballot(leader).place = *place;
    ballot(leader).placed = round;
  } else {
    const bool found = Await(parent, [&] {
      for (leader = 0; leader < parent.ranks; ++leader) {
        if (ballot(leader).placed >= round) return true;
      }
      return false;
    });
    if (!found) return kNcclInternalError;
  }
  return Join(made, ballot(leader).place, ranks, parent.rank);
}

ncclResult_t JoinByVote(Comm& parent, const Vote& vote, Comm& made) {
  const auto ballot = [&](int rank) -> Ballot& {
    Member& member = parent.segment->member(rank);
    return vote.shrink ? member.shrink : member.split;
  };
  const auto reached = [&](std::atomic<uint64_t> Ballot::* counter, uint64_t round) {
    return std::ranges::all_of(vote.voters,
                               [&](int rank) { return (ballot(rank).*counter).load() >= round; });
  };
  // No rank still reads the ballots of the previous round.
  Ballot& mine = ballot(parent.rank);
  const bool free = Await(parent, [&] { return reached(&Ballot::left, vote.round - 1); });
  if (!free) return kNcclInternalError;
  mine.color = vote.color;
  mine.key = vote.key;
  mine.rounds = vote.round;
  if (!Await(parent, [&] { return reached(&Ballot::rounds, vote.round); }))
    return kNcclInternalError;
  if (vote.color < 0) {
    mine.left = vote.round;
    return kNcclSuccess;
  }
  std::vector<int> members;
  for (const int rank : vote.voters) {
    if (ballot(rank).color == vote.color) members.push_back(rank);
  }
  std::ranges::sort(members, {}, [&](int rank) { return std::pair(ballot(rank).key, rank); });
  Ballot& leader = ballot(members.front());
  if (&leader == &mine) {
    if (!Segment::Create(mine.place)) return Fail(kNcclSystemError, "no memory for a segment");
    mine.placed = vote.round;
  }
  if (!Await(parent, [&] { return leader.placed >= vote.round; })) return kNcclInternalError;
  const Place place = leader.place;
  mine.left = vote.round;
  const auto rank = std::ranges::find(members, parent.rank) - members.begin();
  return Join(made, place, static_cast<int>(members.size()), static_cast<int>(rank));
}

}  // namespace nccltune::soft
