// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_SUPPORT_H_
#define NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_SUPPORT_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"

namespace nccltune::bench {

// Variables for the length of a test.
class Environment {
 public:
  ~Environment();
  void Set(const std::string& name, const std::string& value);

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

// Of one process alone.
class LoneExchange : public Exchange {
 public:
  bool AllGather(std::string_view mine, std::vector<std::string>* all) override {
    if (ending) return false;
    ++gathers;
    all->assign(1, std::string(mine));
    return true;
  }
  bool ending = false;
  int gathers = 0;
};

// The real backend as one process with several fake GPUs.
class FakeGpus : public ::testing::Test {
 protected:
  FakeGpus();
  ~FakeGpus() override;

  std::optional<OpenError> TryOpen(int gpus, BackendInfo* info);
  // Throws, which ends the test, if it does not open.
  void Open(int gpus = 3);
  // Ends the backend well; all that it held is given back.
  void Close();
  // What the fakes handed out and did not get back since the test began.
  static long Live();

  static Step StepOf(Collective collective, size_t bytes);

  Environment environment_;
  LoneExchange exchange_;
  NcclOptions options_;
  BackendInfo info_;
  std::unique_ptr<Backend> backend_;

 private:
  const long live_before_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_SUPPORT_H_
