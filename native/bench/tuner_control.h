// SPDX-License-Identifier: Apache-2.0
// Client of the control interface (tuner/control.h) of our tuner plugin, which is loaded in this
// process.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/step.h"
#include "common/shared_library.h"
#include "tuner/control.h"

namespace nccltune::bench {

class TunerControl {
 public:
  // Opens the plugin at `path`. If NCCL has already loaded that path, the loader returns the
  // same instance. Returns null with *error if the file is not our plugin or is too old.
  static std::unique_ptr<TunerControl> Open(const std::string& path, std::string* error);

  int version() const { return version_; }

  // Sets the choice for later calls of the collective. Returns false if the plugin rejects it. For
  // point-to-point collectives NCCL asks no tuner; then Apply does nothing and returns true.
  bool Apply(Collective collective, const Choice& choice);

  bool Record(bool on);

  // Returns the plugin's decision about the newest call of the collective on that CUDA device, if
  // that call was recorded or forced.
  std::optional<nccltune_tuner_decision> LastDecision(Collective collective, int device) const;

  // Returns NCCL's predictions for the newest recorded call of the collective with that size.
  std::optional<nccltune_tuner_table> LastTable(Collective collective, size_t bytes) const;

 private:
  TunerControl() = default;

  SharedLibrary library_;
  int version_ = 0;
  decltype(&nccltune_tuner_force) force_ = nullptr;
  decltype(&nccltune_tuner_release) release_ = nullptr;
  decltype(&nccltune_tuner_record) record_ = nullptr;
  decltype(&nccltune_tuner_last_table) last_table_ = nullptr;
  decltype(&nccltune_tuner_device_decision) device_decision_ = nullptr;
};

}  // namespace nccltune::bench
