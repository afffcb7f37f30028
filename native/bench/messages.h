// SPDX-License-Identifier: Apache-2.0
//
// The payloads of messages between conductor and players. All processes have the same version and
// have sent the right token. So a payload that cannot be parsed is a bug or a damaged connection.
#ifndef NCCLTUNE_BENCH_MESSAGES_H_
#define NCCLTUNE_BENCH_MESSAGES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"
#include "bench/step.h"

namespace nccltune::bench {

// Payload of kOpened: the backend's description, or the reason why the backend could not be opened.
struct OpenResult {
  BackendInfo info;
  std::optional<OpenError> error;
};

// Payload of kAbort: exit status and reason.
struct AbortOrder {
  int status = 0;
  std::string text;
};

// Each function serializes one payload. kStep and kTable carry a Step, kStepDone a StepResult,
// kTableDone a TableResult. kLeaving and kGather carry plain bytes. kGathered carries the bytes of
// all processes, in process order. The types kHeartbeat, kOpen, kQuit and kClosed have no payload.
std::string Serialize(const Step& step);
std::string Serialize(const StepResult& result);
std::string Serialize(const TableResult& result);
std::string Serialize(const OpenResult& opened);
std::string Serialize(const AbortOrder& order);
std::string Serialize(const std::vector<std::string>& parts);

// Each function parses one payload. It returns false if the bytes are not a valid payload of that
// type.
bool Read(std::string_view bytes, Step* step);
bool Read(std::string_view bytes, StepResult* result);
bool Read(std::string_view bytes, TableResult* result);
bool Read(std::string_view bytes, OpenResult* opened);
bool Read(std::string_view bytes, AbortOrder* order);
bool Read(std::string_view bytes, std::vector<std::string>* parts);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_MESSAGES_H_
