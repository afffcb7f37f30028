// SPDX-License-Identifier: Apache-2.0
// Random programs of sends and receives between several ranks.
#pragma once

#include "sendrecv/lane/message_lane.h"
#include "standard.h"

namespace nccltune::sendrecv {

// One message of a program. `comm` and the two ranks identify its lane.
struct Sent {
  size_t comm = 0;
  size_t from = 0;
  size_t to = 0;
  uint64_t bytes = 0;
  bool captured = false;  // captured on both sides
};

struct Call {
  Role role = Role::kSender;
  size_t message = 0;
};

struct Step {
  size_t stream = 0;
  std::vector<Call> calls;
  bool waits = false;  // waits for its stream before the calls
};

struct Program {
  size_t ranks = 2;
  size_t streams = 1;
  std::vector<Sent> messages;
  std::vector<std::vector<Step>> steps;  // by rank
};

// Describes a program: a line for each rank, groups in braces, `>3` sends message 3.
inline std::string Words(const Program& program) {
  std::ostringstream text;
  for (size_t i = 0; i < program.messages.size(); ++i) {
    const Sent& sent = program.messages[i];
    text << "message " << i << ": communicator " << sent.comm << ", rank " << sent.from
         << " to rank " << sent.to << ", " << sent.bytes
         << (sent.captured ? " bytes, captured\n" : " bytes\n");
  }
  for (size_t rank = 0; rank < program.ranks; ++rank) {
    text << "rank " << rank << ":";
    for (const Step& step : program.steps[rank]) {
      text << " s" << step.stream << "{";
      for (const Call& call : step.calls) {
        text << (call.role == Role::kSender ? " >" : " <") << call.message;
      }
      text << " }";
    }
    text << "\n";
  }
  return text.str();
}

struct Kind {
  // Sizes near these three are more likely than others.
  uint64_t floor = 0;
  uint64_t eager = 0;
  uint64_t largest = 0;
  // Groups may mix communicators. NCCL runs a kernel for each of them. In one stream these run one
  // after the other, so such programs may hang.
  bool mixed = true;
  // At most one message of each lane in a group.
  bool single = false;
  // Two ranks, one communicator and large groups.
  bool crowded = false;
};

inline bool SameLane(const Sent& a, const Sent& b) {
  return a.comm == b.comm && a.from == b.from && a.to == b.to;
}

// Moves receives to later positions, but not past a later message of the same lane.
inline void Delay(std::mt19937_64& random, uint64_t eager, const std::vector<Sent>& messages,
                  std::vector<Call>* calls) {
  for (size_t i = calls->size(); i-- > 0;) {
    const Call call = (*calls)[i];
    const Sent& sent = messages[call.message];
    if (call.role == Role::kSender || sent.bytes > eager || random() % 2 == 0) continue;
    size_t to = i;
    const size_t most = i + random() % 6;
    while (to + 1 < calls->size() && to < most) {
      const Call& next = (*calls)[to + 1];
      if (next.role == Role::kReceiver && SameLane(messages[next.message], sent)) break;
      (*calls)[to] = next;
      ++to;
    }
    (*calls)[to] = call;
  }
}

inline std::vector<Step> Grouped(std::mt19937_64& random, const Program& program,
                                 const std::vector<Call>& calls, const Kind& kind) {
  std::vector<Step> steps;
  for (size_t i = 0; i < calls.size();) {
    const size_t most = kind.crowded ? 30 : 4;
    const size_t count =
        std::min<size_t>(calls.size() - i, random() % 3 == 0 ? 1 + random() % most : 1);
    Step step = {.stream = random() % program.streams, .calls = {}};
    const auto comm_of = [&](size_t k) { return program.messages[calls[i + k].message].comm; };
    const auto repeats = [&](const Call& call) {
      return std::any_of(step.calls.begin(), step.calls.end(), [&](const Call& other) {
        return other.role == call.role &&
               SameLane(program.messages[other.message], program.messages[call.message]);
      });
    };
    for (size_t k = 0; k < count; ++k) {
      if (!kind.mixed && comm_of(k) != comm_of(0)) break;
      if (kind.single && repeats(calls[i + k])) break;
      step.calls.push_back(calls[i + k]);
    }
    // Two neighbouring calls of different lanes may be swapped.
    for (size_t k = 0; k + 1 < step.calls.size(); ++k) {
      const Call& one = step.calls[k];
      const Call& other = step.calls[k + 1];
      const bool same = one.role == other.role &&
                        SameLane(program.messages[one.message], program.messages[other.message]);
      if (!same && random() % 2 == 0) std::swap(step.calls[k], step.calls[k + 1]);
    }
    i += step.calls.size();
    steps.push_back(std::move(step));
  }
  return steps;
}

// Returns a program that NCCL's documentation allows. With `eager` most programs also rely on
// NCCL's buffers, which the documentation does not allow.
inline Program RandomProgram(std::mt19937_64& random, size_t messages, bool eager,
                             const Kind& kind) {
  Program program;
  program.ranks = kind.crowded ? 2 : 2 + random() % 3;
  program.streams = 1 + random() % 2;
  const size_t comms = kind.crowded ? 1 : 1 + random() % 2;
  std::vector<std::vector<Call>> calls(program.ranks);
  for (size_t i = 0; i < messages; ++i) {
    Sent sent;
    sent.comm = random() % comms;
    sent.from = random() % program.ranks;
    sent.to = (sent.from + 1 + random() % (program.ranks - 1)) % program.ranks;
    const uint64_t special[] = {kind.floor - 1, kind.floor, kind.eager, kind.eager + 1,
                                kind.largest};
    sent.bytes = random() % 2 == 0 ? special[random() % 5] : 1 + random() % kind.largest;
    sent.captured = random() % 50 == 0;
    program.messages.push_back(sent);
    calls[sent.from].push_back({.role = Role::kSender, .message = i});
    calls[sent.to].push_back({.role = Role::kReceiver, .message = i});
  }
  for (size_t rank = 0; rank < program.ranks; ++rank) {
    if (eager) Delay(random, kind.eager, program.messages, &calls[rank]);
    program.steps.push_back(Grouped(random, program, calls[rank], kind));
  }
  return program;
}

}  // namespace nccltune::sendrecv
