// SPDX-License-Identifier: Apache-2.0
// Communicators start and end in several threads while others transfer; most useful with the thread
// sanitizer.
#include "net/support.h"
#include "standard.h"

namespace nccltune::net {
namespace {

constexpr int kRounds = 200;

// Runs one communicator from init to finalize. Returns the number of calls that failed.
template <typename V>
int LiveOnce(void** context) {
  int failed = 0;
  const auto expect = [&failed](abi::Result result) { failed += result == abi::kSuccess ? 0 : 1; };
  expect(V::Init(context, 7));
  int count = 0;
  expect(V::kNet.devices(&count));
  typename V::Properties properties;
  expect(V::kNet.get_properties(0, &properties));
  std::array<std::byte, abi::kNetHandleBytes> handle = {};
  void* listener = nullptr;
  expect(V::Listen(*context, 0, handle.data(), &listener));
  void* sender = nullptr;
  expect(V::Connect(*context, 0, nullptr, handle.data(), &sender));
  void* receiver = nullptr;
  expect(V::Accept(listener, &receiver));
  std::array<char, 8> data = {};
  void* request = nullptr;
  expect(V::Isend(sender, data.data(), 8, &request));
  int done = 0;
  expect(V::kNet.test(request, &done, nullptr));
  expect(V::kNet.close_send(sender));
  expect(V::kNet.close_recv(receiver));
  expect(V::kNet.close_listen(listener));
  return failed + (done == 1 && count == 2 ? 0 : 1);
}

TEST(Concurrency, CommunicatorsOfTwoInterfacesAtOnce) {
  ResetStandIn();
  std::atomic<int> failed = 0;
  const auto with_contexts = [&] {
    for (int round = 0; round < kRounds; ++round) {
      void* context = nullptr;
      failed += LiveOnce<V12>(&context);
      if (V12::Finalize(context) != abi::kSuccess) ++failed;
    }
  };
  const auto without = [&] {
    for (int round = 0; round < kRounds; ++round) {
      void* context = nullptr;
      failed += LiveOnce<V9>(&context);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(with_contexts);
  threads.emplace_back(without);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(TakeLog().size(), 4U * kRounds) << "one line for each init";
}

}  // namespace
}  // namespace nccltune::net
