// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_TICKS_H_
#define NCCLTUNE_SENDRECV_TICKS_H_

#include <cstdint>

namespace nccltune::sendrecv {

// The processor's counter, which reads no memory, unlike the system's clocks. How many a second it
// counts, and that it may jump, is for who asks.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  uint64_t ticks = 0;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_TICKS_H_
