// SPDX-License-Identifier: Apache-2.0
//
// The events that a profiler plugin receives through NCCL's callback.
#include "net/profiler_event.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net/support.h"

namespace nccltune::net {
namespace {

// Records calls like NCCL's callback with a profiler that accepts some events.
struct Heard {
  int type = 0;
  void* event = nullptr;  // the value that was passed in
  void* parent = nullptr;
  int64_t plugin = 0;
  abi::ProfilerNetSocketV1 transfer = {};
};

struct Profiler {
  bool interested = true;
  std::vector<Heard> heard;
  std::array<int, 16> events = {};
};
Profiler the_profiler;

abi::Result Callback(void** event, int type, void* parent, int64_t plugin, void* data) {
  Heard heard = {.type = type, .event = *event, .parent = parent, .plugin = plugin, .transfer = {}};
  if (data != nullptr) heard.transfer = *static_cast<const abi::ProfilerNetSocketV1*>(data);
  the_profiler.heard.push_back(heard);
  const bool starts = type == abi::kNetEventStart;
  if (starts && the_profiler.interested) {
    *event = &the_profiler.events.at(the_profiler.heard.size());
  }
  return abi::kSuccess;
}

template <typename V>
class ProfilerEventTest : public testing::Test {
 protected:
  void SetUp() override {
    ResetStandIn();
    the_profiler = {};
    ASSERT_EQ(Init(Callback), abi::kSuccess);
  }

  void TearDown() override {
    EXPECT_EQ(V::Finalize(context_), abi::kSuccess);
    TakeProfiler(nullptr);
    TakeLog();
  }

  abi::Result Init(abi::NetProfilerCallback callback) {
    if constexpr (V::kHasContext) {
      return V::kNet.init(&context_, 1, nullptr, KeepLog, callback);
    } else {
      return V::kNet.init(KeepLog, callback);
    }
  }

  void* Send(size_t bytes, void* parent) {
    void* request = nullptr;
    EXPECT_EQ(
        V::kNet.isend(&TheStandIn().sender, data_.data(), bytes, 0, nullptr, parent, &request),
        abi::kSuccess);
    return request;
  }

  void* Receive(size_t bytes, void** parents) {
    void* request = nullptr;
    void* data = data_.data();
    int tag = 0;
    EXPECT_EQ(
        V::kNet.irecv(&TheStandIn().receiver, 1, &data, &bytes, &tag, nullptr, parents, &request),
        abi::kSuccess);
    return request;
  }

  abi::Result TestOnce(void* request, bool ready, abi::Result result = abi::kSuccess) {
    TheStandIn().ready = ready;
    TheStandIn().result = result;
    int done = 0;
    return V::kNet.test(request, &done, nullptr);
  }

  std::array<std::byte, 64> data_ = {};
  int parent_ = 0;
  void* context_ = nullptr;
};

using SinceV10 = testing::Types<V10, V11, V12>;
TYPED_TEST_SUITE(ProfilerEventTest, SinceV10, VersionNames);

TYPED_TEST(ProfilerEventTest, ASendIsATransferUnderItsParentUntilItIsDone) {
  void* const request = this->Send(40, &this->parent_);
  ASSERT_EQ(the_profiler.heard.size(), 1U);
  const Heard& began = the_profiler.heard[0];
  EXPECT_EQ(began.type, abi::kNetEventStart);
  EXPECT_EQ(began.event, nullptr);
  EXPECT_EQ(began.parent, &this->parent_);
  EXPECT_EQ(began.plugin, 0x20001)
      << "the upper half means TCP, the lower one is the first version";
  EXPECT_EQ(began.transfer.type, 1);
  EXPECT_EQ(began.transfer.fd, -1);
  EXPECT_EQ(began.transfer.operation, 0);
  EXPECT_EQ(began.transfer.bytes, 40U);
  EXPECT_EQ(this->TestOnce(request, false), abi::kSuccess);
  EXPECT_EQ(the_profiler.heard.size(), 1U);
  EXPECT_EQ(this->TestOnce(request, true), abi::kSuccess);
  ASSERT_EQ(the_profiler.heard.size(), 2U);
  EXPECT_EQ(the_profiler.heard[1].type, abi::kNetEventStop);
  EXPECT_EQ(the_profiler.heard[1].event, &the_profiler.events[1]) << "what the start gave";
}

TYPED_TEST(ProfilerEventTest, AReceiveTakesTheParentOfItsOneBuffer) {
  std::array<void*, 1> parents = {&this->parent_};
  void* const request = this->Receive(50, parents.data());
  ASSERT_EQ(the_profiler.heard.size(), 1U);
  EXPECT_EQ(the_profiler.heard[0].parent, &this->parent_);
  EXPECT_EQ(the_profiler.heard[0].transfer.operation, 1);
  EXPECT_EQ(the_profiler.heard[0].transfer.bytes, 50U);
  this->TestOnce(request, true);
  EXPECT_EQ(the_profiler.heard.size(), 2U);
}

TYPED_TEST(ProfilerEventTest, AnErrorEndsTheEventOnce) {
  void* const request = this->Send(1, &this->parent_);
  EXPECT_EQ(this->TestOnce(request, false, abi::kRemoteError), abi::kRemoteError);
  EXPECT_EQ(the_profiler.heard.size(), 2U);
  EXPECT_EQ(this->TestOnce(request, false, abi::kRemoteError), abi::kRemoteError);
  EXPECT_EQ(the_profiler.heard.size(), 2U);
}

TYPED_TEST(ProfilerEventTest, WithoutAParentNobodyIsCalled) {
  // The bootstrap's requests.
  std::array<void*, 1> parents = {nullptr};
  this->TestOnce(this->Send(1, nullptr), true);
  this->TestOnce(this->Receive(1, nullptr), true);
  this->TestOnce(this->Receive(1, parents.data()), true);
  EXPECT_TRUE(the_profiler.heard.empty());
}

TYPED_TEST(ProfilerEventTest, WithoutARequestThereIsNoEvent) {
  TheStandIn().ready = false;
  EXPECT_EQ(this->Send(1, &this->parent_), nullptr) << "to be asked again";
  EXPECT_TRUE(the_profiler.heard.empty());
}

TYPED_TEST(ProfilerEventTest, WhoIsNotInterestedHearsOfNoEnd) {
  the_profiler.interested = false;
  this->TestOnce(this->Send(1, &this->parent_), true);
  EXPECT_EQ(the_profiler.heard.size(), 1U);
}

TYPED_TEST(ProfilerEventTest, WithoutACallbackNothingHappens) {
  ASSERT_EQ(TypeParam::Finalize(this->context_), abi::kSuccess);
  ASSERT_EQ(this->Init(nullptr), abi::kSuccess);
  EXPECT_EQ(this->TestOnce(this->Send(1, &this->parent_), true), abi::kSuccess);
  EXPECT_TRUE(the_profiler.heard.empty());
}

}  // namespace
}  // namespace nccltune::net
