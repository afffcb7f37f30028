// SPDX-License-Identifier: Apache-2.0
// Ends this process: on a signal, when its parent dies, or by force if it is stuck.
#ifndef NCCLTUNE_BENCH_ENDING_H_
#define NCCLTUNE_BENCH_ENDING_H_

#include <chrono>
#include <string>

namespace nccltune::bench {

enum ExitStatus : int {
  kOk = 0,
  kBadArguments = 2,
  kCannotRun = 3,  // no GPU, no library, or NCCL is too old
  kFailed = 4,     // a rank died, a collective hung, or NCCL failed
  kSignalled = 128,
};

// Time from the moment when a process must end to the exit by force.
inline constexpr std::chrono::milliseconds kGrace{3500};

// Exits the process with `status` after the time `after`, even if threads of the process are stuck.
// If called several times, the earliest deadline counts.
void EndByForce(int status, std::chrono::milliseconds after);

// Handles SIGTERM, SIGINT and SIGHUP. A SIGINT or SIGHUP that the parent has set to be ignored
// (nohup) stays ignored. Create this object before any thread, because threads inherit the signal
// mask. The first signal makes descriptor() readable. After kGrace the process then exits by force.
class Signals {
 public:
  Signals();

  int descriptor() const { return event_; }
  // Returns the signal received; 0 if there is none yet.
  int number() const;
  static std::string Name(int number);

 private:
  int event_;  // never closed, because the waiting thread uses it until the process exits
};

// Makes the kernel send SIGTERM to this process when the parent dies. Returns false if the parent
// is already dead.
bool EndWithParent();

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ENDING_H_
