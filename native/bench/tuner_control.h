// SPDX-License-Identifier: Apache-2.0
//
// The control interface of our tuner plugin in this process, found by name.
#ifndef NCCLTUNE_BENCH_TUNER_CONTROL_H_
#define NCCLTUNE_BENCH_TUNER_CONTROL_H_

#include <memory>
#include <optional>
#include <string>

#include "bench/step.h"
#include "tuner/control.h"

namespace nccltune::bench {

class TunerControl {
 public:
  // The plugin at `path`, which is the one that NCCL, or who plays it, loads from there: the loader
  // gives all the same. Null and *error if it is not our plugin or too old.
  static std::unique_ptr<TunerControl> Open(const std::string& path, std::string* error);
  ~TunerControl();
  TunerControl(const TunerControl&) = delete;
  TunerControl& operator=(const TunerControl&) = delete;

  int version() const { return version_; }

  // From the next call of the collective on. False if the plugin refuses the numbers. Collectives
  // that no tuner is asked about can only run the default: true and nothing done.
  bool Apply(Collective collective, const Choice& choice);

  bool Record(bool on);

  // What was decided about the newest call of the collective, if anything was recorded or forced.
  std::optional<nccltune_tuner_decision> LastDecision(Collective collective) const;

  // NCCL's predictions at the newest call of the collective with that size while recording was on.
  std::optional<nccltune_tuner_table> LastTable(Collective collective, size_t bytes) const;

 private:
  TunerControl() = default;

  void* handle_ = nullptr;
  int version_ = 0;
  decltype(&nccltune_tuner_force) force_ = nullptr;
  decltype(&nccltune_tuner_release) release_ = nullptr;
  decltype(&nccltune_tuner_record) record_ = nullptr;
  decltype(&nccltune_tuner_last_table) last_table_ = nullptr;
  decltype(&nccltune_tuner_last_decision) last_decision_ = nullptr;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_TUNER_CONTROL_H_
