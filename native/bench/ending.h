// SPDX-License-Identifier: Apache-2.0
//
// How this process comes to its end: by a signal, with its parent, or by force when it is stuck.
#ifndef NCCLTUNE_BENCH_ENDING_H_
#define NCCLTUNE_BENCH_ENDING_H_

#include <chrono>
#include <string>

namespace nccltune::bench {

enum ExitStatus : int {
  kOk = 0,
  kBadArguments = 2,
  kCannotRun = 3,  // no GPU, no library, too old an NCCL
  kFailed = 4,     // a rank died, a collective got stuck, NCCL failed
  kSignalled = 128,
};

// From the moment a process must end it has this long.
inline constexpr std::chrono::milliseconds kGrace{3500};

// Ends the process with `status` by then, whatever it does. The earliest call counts.
void EndByForce(int status, std::chrono::milliseconds after);

// The signals that ask for an end, but for those that the starter has ignored (nohup). To be made
// before any thread, which would get them too. The first that comes makes descriptor() readable and
// gives the process kGrace to end.
class Signals {
 public:
  Signals();

  int descriptor() const { return event_; }
  // 0: none has come.
  int number() const;
  static std::string Name(int number);

 private:
  int event_;  // as long as the process, like the thread that waits
};

// Asks for SIGTERM when the parent dies. False if it has died already.
bool EndWithParent();

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ENDING_H_
