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
  std::shared_ptr<Comm> comm;
  std::function<ncclResult_t()> join;
  ncclResult_t result = kNcclSuccess;
};

struct Group {
  int depth = 0;
  ncclResult_t error = kNcclSuccess;
  std::vector<Task> tasks;
  std::vector<Joining> joins;
};

thread_local Group group;

void RunJoin(Joining& joining) {
  joining.result = joining.join();
  joining.comm->error = joining.result;
}

// Ranks of one process need each other.
ncclResult_t RunJoins(std::vector<Joining> joins) {
  std::vector<std::thread> threads;
  ncclResult_t result = kNcclSuccess;
  for (Joining& joining : joins) {
    if (!joining.comm->blocking) {
      joining.comm->error = kNcclInProgress;
      std::thread([own = joining]() mutable { RunJoin(own); }).detach();
      joining.result = kNcclInProgress;
    } else if (joins.size() == 1) {
      RunJoin(joining);
    } else {
      threads.emplace_back([&joining] { RunJoin(joining); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const Joining& joining : joins) {
    if (result == kNcclSuccess || result == kNcclInProgress) {
      result = std::max(result, joining.result);
      if (joining.result != kNcclSuccess && joining.result != kNcclInProgress) {
        result = joining.result;
      }
    }
  }
  return result;
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

// A little later, by a thread of its own. No communicator blocks where one does not.
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
    const InContext in(context);
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

ncclResult_t EndGroup() {
  if (group.depth == 0) return Fail(kNcclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return kNcclSuccess;
  Group ended = std::exchange(group, {});
  if (ended.error != kNcclSuccess) return ended.error;
  const ncclResult_t joined = RunJoins(std::move(ended.joins));
  if (joined != kNcclSuccess && joined != kNcclInProgress) return joined;
  const bool blocks =
      std::ranges::all_of(ended.tasks, [](const Task& task) { return task.comm->blocking; });
  const ncclResult_t ran =
      blocks ? RunTasks(std::move(ended.tasks)) : RunTasksLater(std::move(ended.tasks));
  return ran == kNcclSuccess ? joined : ran;
}

ncclResult_t AddTask(Task task) {
  StartGroup();
  group.tasks.push_back(std::move(task));
  return EndGroup();
}

ncclResult_t AddJoin(std::shared_ptr<Comm> comm, std::function<ncclResult_t()> join) {
  StartGroup();
  group.joins.push_back({.comm = std::move(comm), .join = std::move(join)});
  return EndGroup();
}

}  // namespace nccltune::soft
