// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>

namespace nccltune {

// Runs `work` and catches every exception. Returns false if `work` threw. `failed` is called with
// the exception's text and must not throw. Use this in thread functions, destructors and callbacks:
// an exception that leaves one of these functions ends the job.
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

// Runs `work` and ignores every exception. Returns false if `work` threw.
template <typename Work>
bool Contain(const Work& work) noexcept {
  return Contain(work, [](const char* /*what*/) {});
}

}  // namespace nccltune
