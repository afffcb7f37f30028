// SPDX-License-Identifier: Apache-2.0
//
// Functions with which archive.h converts OpenError and StepError to bytes and back.
#ifndef NCCLTUNE_BENCH_ARCHIVE_ERRORS_H_
#define NCCLTUNE_BENCH_ARCHIVE_ERRORS_H_

#include "bench/archive.h"
#include "bench/backend.h"
#include "bench/step.h"

namespace nccltune::bench {

template <typename Archive>
void Describe(Archive& archive, OpenError& error) {
  archive(error.kind, error.text, error.hint, error.rank);
}

template <typename Archive>
void Describe(Archive& archive, StepError& error) {
  archive(error.kind, error.text, error.rank, error.fatal);
}

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ARCHIVE_ERRORS_H_
