// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_WARNINGS_H_
#define NCCLTUNE_TUNER_WARNINGS_H_

#include <string_view>

#include "common/log.h"

namespace nccltune::tuner {

// Logs each distinct warning once per process, because all communicators of a job read the same
// file.
class Warnings {
 public:
  explicit Warnings(const Log& log) : log_(log) {}

  void LogOnce(std::string_view text) const;

 private:
  const Log& log_;
};

// Forgets the logged warnings, so that each is logged again. For tests.
void ForgetWarnings();

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_WARNINGS_H_
