// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_TEAM_H_
#define NCCLTUNE_BENCH_NCCL_TEAM_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace nccltune::bench {

// Threads, one for each GPU of the process, that do the same task at the same time.
class Team {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void(size_t member)>;

  explicit Team(size_t members);
  // Threads that are stuck in a task are left to themselves: what the task uses has to live as long
  // as the task object.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Runs task(0) to task(members - 1), each in its thread. True when all have returned; false at
  // the deadline, or kHurry after Hurry, with some still running; then only Settle may follow.
  bool Run(Task task, Clock::time_point deadline);

  // From a task or any thread: the current Run is to end soon.
  void Hurry();

  // Waits for running tasks. True if there are none any more.
  bool Settle(std::chrono::milliseconds longest);

  // The first member that has not returned from the task; the number of members if all have.
  size_t FirstBusy() const;

  static constexpr std::chrono::seconds kHurry{2};

 private:
  struct Shared;
  static void Loop(const std::shared_ptr<Shared>& shared, size_t member);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_TEAM_H_
