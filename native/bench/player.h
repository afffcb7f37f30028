// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_PLAYER_H_
#define NCCLTUNE_BENCH_PLAYER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/wire.h"
#include "bench/worker.h"
#include "bench/world.h"

namespace nccltune::bench {

// What every process does: take steps from the conductor, run them on its backend, answer. Ends
// when it is told to, with the conductor, or when this process has to.
class Player {
 public:
  struct Surroundings {
    // Readable when this process has to end, -1 for none; and what to say of it then.
    int interrupt = -1;
    std::function<std::string()> why_interrupted = [] { return std::string("interrupted"); };
    std::function<int()> interrupted_status = [] { return 0; };
    // Called once the player has begun to end for any reason but the good one: whoever calls Run
    // makes sure then that the process ends though the backend may be stuck.
    std::function<void(int status)> ending = [](int) {};
  };

  Player(const World& world, std::unique_ptr<Backend> backend, Wire wire,
         Surroundings surroundings);

  // Returns the process's exit status. *why is empty after a good end.
  int Run(std::string* why);

  // The connection to the conductor broke before it said that the run ends.
  bool lost_conductor() const { return lost_conductor_; }

 private:
  void Pump();
  void Handle(Message message);
  void End(int status, std::string why);

  Wire wire_;
  const Surroundings surroundings_;
  Worker worker_;
  bool quitting_ = false;  // was asked to end well
  bool ending_ = false;
  bool lost_conductor_ = false;
  int status_ = 0;
  std::string why_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_PLAYER_H_
