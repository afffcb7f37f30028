// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_SUPPORT_H_
#define NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_SUPPORT_H_

#include "bench/backend.h"
#include "testing.h"

namespace nccltune::bench {

// The exchange of a run with a single process.
class LoneExchange : public ProcessExchange {
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

// Runs the real backend in one process with several fake GPUs.
class FakeGpus : public ::testing::Test {
 protected:
  FakeGpus();
  ~FakeGpus() override;

  std::optional<OpenError> TryOpen(int gpus, BackendInfo* info);
  // Throws if the backend cannot be opened, which fails the test.
  void Open(int gpus = 3);
  // Closes the backend and checks that it has released everything.
  void Close();
  // Number of objects of the fake libraries that were not released since the test began.
  static long Live();

  static Step StepOf(Collective collective, size_t bytes);

  ScopedVariables environment_;
  LoneExchange exchange_;
  NcclOptions options_;
  BackendInfo info_;
  std::unique_ptr<Backend> backend_;

 private:
  const long live_before_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_SUPPORT_H_
