// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_SENDRECV_OPENED_GATE_H_
#define NCCLTUNE_TESTS_SENDRECV_OPENED_GATE_H_

#include "sendrecv/gate.h"

namespace nccltune::sendrecv {

// A gate that is open for both sides before their first message.
struct OpenedGate {
  GateMemory memory;
  OpenedGate() {
    GateState state;
    state.entered = {true, true};
    state.opened = true;
    memory.periods[0].store(state.Packed());
  }
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_OPENED_GATE_H_
