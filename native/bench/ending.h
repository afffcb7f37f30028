// SPDX-License-Identifier: Apache-2.0
// Ends this process: on a signal, when its parent dies, or by force if it is stuck.
#pragma once

#include <chrono>
#include <functional>
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

// How one learns that this process must end early, and what happens then.
struct EarlyEnd {
  // Becomes readable when the process must end; -1 for none. The two functions below then return
  // the reason, such as "ended by SIGTERM", and the exit status.
  int interrupt = -1;
  std::function<std::string()> why_interrupted = [] { return std::string("interrupted"); };
  std::function<int()> interrupted_status = [] { return 0; };
  // Called once, when the process starts to end for any reason except a normal quit. It must make
  // sure that the process exits even if something is stuck.
  std::function<void(int status)> ending = [](int) {};
};

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
  // On a signal, and by force after kGrace. This object must live longer.
  EarlyEnd OnSignal() const;

 private:
  int event_;  // never closed, because the waiting thread uses it until the process exits
};

// Makes the kernel send SIGTERM to this process when the parent dies. Returns false if the parent
// is already dead.
bool EndWithParent();

}  // namespace nccltune::bench
