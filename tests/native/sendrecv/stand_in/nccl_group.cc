// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace nccltune::soft {
namespace {

struct Joining {
  std::shared_ptr<Comm> asked;
  std::function<ncclResult_t()> join;
  std::function<void()> begin;
  ncclResult_t result = kNcclSuccess;
};

struct Group {
  int depth = 0;
  ncclResult_t error = kNcclSuccess;
  std::vector<Task> tasks;
  std::vector<Joining> joins;
};

thread_local Group group;

// Ranks of one process join in parallel threads, because each waits for the others.
ncclResult_t RunJoins(std::vector<Joining>& joins) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < joins.size(); ++i) {
    threads.emplace_back([&joining = joins[i]] { joining.result = joining.join(); });
  }
  if (!joins.empty()) joins[0].result = joins[0].join();
  for (std::thread& thread : threads) thread.join();
  const auto fails = std::ranges::find_if(
      joins, [](const Joining& joining) { return joining.result != kNcclSuccess; });
  return fails == joins.end() ? kNcclSuccess : fails->result;
}

// Joins in a separate thread. The communicators count as complete when all have joined.
ncclResult_t RunJoinsLater(std::vector<Joining> joins) {
  for (const Joining& joining : joins) joining.asked->error = kNcclInProgress;
  std::thread([own = std::move(joins)]() mutable {
    RunJoins(own);
    for (const Joining& joining : own) joining.asked->error = joining.result;
  }).detach();
  return kNcclInProgress;
}

ncclResult_t RunTasks(std::vector<Task> tasks) {
  ncclResult_t result = kNcclSuccess;
  while (!tasks.empty()) {
    const std::shared_ptr<Comm> comm = tasks.front().comm;
    const auto others =
        std::ranges::stable_partition(tasks, [&](const Task& task) { return task.comm == comm; });
    std::vector<Task> mine(std::make_move_iterator(tasks.begin()),
                           std::make_move_iterator(others.begin()));
    tasks.erase(tasks.begin(), others.begin());
    const ncclResult_t launched = Launch(comm, std::move(mine));
    if (result == kNcclSuccess) result = launched;
  }
  return result;
}

// Runs after a delay in a separate thread. If one communicator of the group is nonblocking, all are
// treated so.
ncclResult_t RunTasksLater(std::vector<Task> tasks) {
  std::vector<std::shared_ptr<Comm>> comms;
  for (const Task& task : tasks) {
    if (task.comm->error != kNcclInProgress) comms.push_back(task.comm);
    task.comm->error = kNcclInProgress;
  }
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  std::thread([own = std::move(tasks), comms = std::move(comms), context]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const ScopedCommContext in(context);
    const ncclResult_t result = RunTasks(std::move(own));
    for (const std::shared_ptr<Comm>& comm : comms) {
      ncclResult_t before = kNcclInProgress;
      comm->error.compare_exchange_strong(before, result);
    }
  }).detach();
  return kNcclInProgress;
}

}  // namespace

void StartGroup() { ++group.depth; }

ncclResult_t FailGroup(ncclResult_t result) {
  if (group.depth > 0 && group.error == kNcclSuccess) group.error = result;
  return result;
}

ncclResult_t EndGroup(ncclSimInfo_t* info) {
  if (group.depth == 0) return Fail(kNcclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return kNcclSuccess;
  Group ended = std::exchange(group, {});
  if (ended.error != kNcclSuccess) return ended.error;
  if (info != nullptr && info->magic != 0x74685283) return kNcclInvalidArgument;
  for (const Joining& joining : ended.joins) joining.begin();
  const bool waits = std::ranges::all_of(
      ended.joins, [](const Joining& joining) { return joining.asked->blocking; });
  const ncclResult_t joined = waits ? RunJoins(ended.joins) : RunJoinsLater(std::move(ended.joins));
  if (joined != kNcclSuccess && joined != kNcclInProgress) return joined;
  const bool blocks =
      std::ranges::all_of(ended.tasks, [](const Task& task) { return task.comm->blocking; });
  // Nonblocking communicators run a simulated group as well, as in NCCL 2.22 to 2.30.
  if (info != nullptr && blocks) {
    info->time = 1;
    return joined;
  }
  const ncclResult_t ran =
      blocks ? RunTasks(std::move(ended.tasks)) : RunTasksLater(std::move(ended.tasks));
  return ran == kNcclSuccess ? joined : ran;
}

ncclResult_t AddTask(Task task) {
  StartGroup();
  group.tasks.push_back(std::move(task));
  return EndGroup();
}

ncclResult_t AddJoin(std::shared_ptr<Comm> asked, std::function<ncclResult_t()> join,
                     std::function<void()> begin) {
  StartGroup();
  group.joins.push_back(
      {.asked = std::move(asked), .join = std::move(join), .begin = std::move(begin)});
  return EndGroup();
}

}  // namespace nccltune::soft
