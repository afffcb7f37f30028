// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace nccltune::bench {

// A pool of threads, one for each GPU of the process, that run the same task at the same time.
class Team {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void(size_t member)>;

  explicit Team(size_t members);
  // Ends all threads and waits for them. A thread that is still in a task is detached instead.
  // Everything that the task uses must live as long as the task object.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Runs task(0) to task(members - 1), each in its own thread. Returns true when all have returned.
  // Returns false if a task still runs at the deadline, or kEndSoonLimit after EndSoon. In that
  // case, do not call Run again before WaitIdle has returned true.
  bool Run(Task task, Clock::time_point deadline);

  // Makes the current Run return within kEndSoonLimit. Called from any thread, also from a task.
  void EndSoon();

  // Waits at most `longest` for running tasks. Returns true if none is running.
  bool WaitIdle(std::chrono::milliseconds longest);

  // Returns the first member whose task has not returned; the number of members if all have.
  size_t FirstBusy() const;

  static constexpr std::chrono::seconds kEndSoonLimit{2};

 private:
  struct Shared;
  static void Loop(const std::shared_ptr<Shared>& shared, size_t member);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace nccltune::bench
