// SPDX-License-Identifier: Apache-2.0
#include "bench/tuner_control.h"

namespace nccltune::bench {
namespace {

// For the collectives that NCCL asks tuners about, Collective has the same numbers as the tuner
// interface.
int NumberFor(Collective collective) { return static_cast<int>(collective); }

template <typename Function>
bool Find(const SharedLibrary& library, const char* name, Function** function) {
  *function = library.Find<Function>(name);
  return *function != nullptr;
}

}  // namespace

std::unique_ptr<TunerControl> TunerControl::Open(const std::string& path, std::string* error) {
  std::unique_ptr<TunerControl> control(new TunerControl);
  SharedLibrary& library = control->library_;
  library = SharedLibrary::Open(path, error);
  if (!library) {
    *error = "cannot be opened: " + *error;
    return nullptr;
  }
  decltype(&nccltune_tuner_control_version) version = nullptr;
  control->version_ = Find(library, "nccltune_tuner_control_version", &version) ? version() : 0;
  const bool complete = Find(library, "nccltune_tuner_force", &control->force_) &&
                        Find(library, "nccltune_tuner_release", &control->release_) &&
                        Find(library, "nccltune_tuner_record", &control->record_) &&
                        Find(library, "nccltune_tuner_last_table", &control->last_table_) &&
                        Find(library, "nccltune_tuner_device_decision", &control->device_decision_);
  if (control->version_ < 1 || (control->version_ >= NCCLTUNE_TUNER_CONTROL_VERSION && !complete)) {
    *error = "is not nccltune's tuner plugin: it has no control interface";
    return nullptr;
  }
  if (control->version_ < NCCLTUNE_TUNER_CONTROL_VERSION) {
    *error = "is an older nccltune's tuner plugin (control interface " +
             std::to_string(control->version_) + ", needed is " +
             std::to_string(NCCLTUNE_TUNER_CONTROL_VERSION) + ")";
    return nullptr;
  }
  return control;
}

bool TunerControl::Apply(Collective collective, const Choice& choice) {
  if (!IsTuned(collective)) return true;
  const int number = NumberFor(collective);
  if (choice.kind == Choice::Kind::kTuned) return release_(number) == NCCLTUNE_TUNER_OK;
  const Choice wanted = choice.kind == Choice::Kind::kForced ? choice : Choice();
  return force_(number, wanted.combination.algorithm, wanted.combination.protocol, wanted.channels,
                wanted.chunk_bytes) == NCCLTUNE_TUNER_OK;
}

bool TunerControl::Record(bool on) { return record_(on ? 1 : 0) == NCCLTUNE_TUNER_OK; }

std::optional<nccltune_tuner_decision> TunerControl::LastDecision(Collective collective,
                                                                  int device) const {
  nccltune_tuner_decision decision{};
  if (!IsTuned(collective) ||
      device_decision_(device, NumberFor(collective), &decision) != NCCLTUNE_TUNER_OK) {
    return std::nullopt;
  }
  return decision;
}

std::optional<nccltune_tuner_table> TunerControl::LastTable(Collective collective,
                                                            size_t bytes) const {
  nccltune_tuner_table table{};
  if (!IsTuned(collective) ||
      last_table_(NumberFor(collective), bytes, &table) != NCCLTUNE_TUNER_OK) {
    return std::nullopt;
  }
  return table;
}

}  // namespace nccltune::bench
