// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_CONTAIN_H_
#define NCCLTUNE_COMMON_CONTAIN_H_

#include <exception>
#include <new>

namespace nccltune {

// Runs `work` and catches every exception; `failed` gets its text and must not throw. Returns
// whether nothing was thrown. For thread functions, destructors and callbacks: an exception that
// leaves one of these ends the job.
template <typename Work, typename Failed>
bool Contain(const Work& work, const Failed& failed) noexcept {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
    failed("out of memory");
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {
    failed("an exception of unknown type");
  }
  return false;
}

// The same without an action after a failure.
template <typename Work>
bool Contain(const Work& work) noexcept {
  return Contain(work, [](const char* /*what*/) {});
}

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_CONTAIN_H_
