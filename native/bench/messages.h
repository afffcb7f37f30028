// SPDX-License-Identifier: Apache-2.0
//
// What the messages between conductor and players hold. All processes are of one version and have
// shown the token; what does not read is a bug or a damaged connection.
#ifndef NCCLTUNE_BENCH_MESSAGES_H_
#define NCCLTUNE_BENCH_MESSAGES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"
#include "bench/step.h"

namespace nccltune::bench {

// kOpened: what the backend is, or why it is not.
struct Opened {
  BackendInfo info;
  std::optional<OpenError> error;
};

// kAbort: how to end, and why.
struct Order {
  int status = 0;
  std::string text;
};

// kStep and kTable hold a Step, kStepDone a StepResult, kTableDone a TableResult, kLeaving and
// kGather plain bytes, kGathered the parts of all.
std::string Written(const Step& step);
std::string Written(const StepResult& result);
std::string Written(const TableResult& result);
std::string Written(const Opened& opened);
std::string Written(const Order& order);
std::string Written(const std::vector<std::string>& parts);

// False if the bytes are not what the writer makes.
bool Read(std::string_view bytes, Step* step);
bool Read(std::string_view bytes, StepResult* result);
bool Read(std::string_view bytes, TableResult* result);
bool Read(std::string_view bytes, Opened* opened);
bool Read(std::string_view bytes, Order* order);
bool Read(std::string_view bytes, std::vector<std::string>* parts);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_MESSAGES_H_
