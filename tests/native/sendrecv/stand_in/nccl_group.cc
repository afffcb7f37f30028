// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/nccl_group.h"

#include <algorithm>
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
  const ncclResult_t ran = RunTasks(std::move(ended.tasks));
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
