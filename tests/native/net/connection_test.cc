// SPDX-License-Identifier: Apache-2.0
// Tests every interface version through its own struct: connections, transfers and close.
#include "net/support.h"
#include "standard.h"

namespace nccltune::net {
namespace {

TYPED_TEST_SUITE(ConnectionTest, AllVersions, VersionNames);

TYPED_TEST(ConnectionTest, ListenHandsOverDeviceHandleAndSurroundings) {
  void* comm = nullptr;
  ASSERT_EQ(TypeParam::Listen(this->context_, 1, this->handle_.data(), &comm), abi::kSuccess);
  EXPECT_EQ(comm, &this->below().listener);
  EXPECT_EQ(this->below().device, &this->below().devices[1]);
  EXPECT_EQ(this->below().handle, this->handle_.data());
  ASSERT_TRUE(this->below().context.has_value());
  EXPECT_EQ(this->below().context->settings.flows, 5);
  EXPECT_EQ(this->below().context->traffic_class,
            TypeParam::kHasContext ? this->kTrafficClass : -1);
  this->below().context->log.Warn("heard");
  EXPECT_EQ(TakeLog(), std::vector<std::string>{"WARN NET/nccltune: heard"});
  EXPECT_EQ(TypeParam::kNet.close_listen(comm), abi::kSuccess);
  EXPECT_EQ(this->below().closed, std::vector<const void*>{comm});
}

TYPED_TEST(ConnectionTest, ConnectIsAskedUntilItStands) {
  abi::NetCommConfig config = {this->kTrafficClass};
  abi::NetDeviceHandle code = {};
  abi::NetDeviceHandle* send_device = &code;
  this->below().ready = false;
  void* comm = &comm;
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(
        TypeParam::Connect(this->context_, 0, &config, this->handle_.data(), &comm, &send_device),
        abi::kSuccess);
    EXPECT_EQ(comm, nullptr);
    EXPECT_EQ(this->below().calls, round);
  }
  this->below().ready = true;
  ASSERT_EQ(
      TypeParam::Connect(this->context_, 0, &config, this->handle_.data(), &comm, &send_device),
      abi::kSuccess);
  EXPECT_EQ(comm, this->sender());
  EXPECT_EQ(send_device, &code) << "it is for code on the GPU";
  EXPECT_EQ(this->below().device, &this->below().devices[0]);
  EXPECT_EQ(this->below().handle, this->handle_.data());
  EXPECT_EQ(this->below().context->traffic_class,
            TypeParam::kNumber >= 10 ? this->kTrafficClass : -1);
  EXPECT_EQ(TypeParam::kNet.close_send(comm), abi::kSuccess);
  EXPECT_EQ(this->below().closed, std::vector<const void*>{comm});
}

TYPED_TEST(ConnectionTest, ConnectNeedsNeitherConfigurationNorDeviceHandle) {
  void* comm = nullptr;
  ASSERT_EQ(TypeParam::Connect(this->context_, 0, nullptr, this->handle_.data(), &comm, nullptr),
            abi::kSuccess);
  EXPECT_EQ(comm, this->sender());
  EXPECT_EQ(this->below().context->traffic_class,
            TypeParam::kHasContext ? this->kTrafficClass : -1);
}

TYPED_TEST(ConnectionTest, ListenConnectAndAcceptCheckTheirPointers) {
  void* const handle = this->handle_.data();
  const auto expect = [this](const auto& call, const std::string& words) {
    void* comm = &comm;
    this->ExpectRefused(call(&comm), words);
    EXPECT_EQ(comm, nullptr);
  };
  expect([&](void** comm) { return TypeParam::Listen(this->context_, 0, nullptr, comm); },
         "listen: the handle is null");
  expect([&](void** comm) { return TypeParam::Connect(this->context_, 0, nullptr, nullptr, comm); },
         "connect: the handle is null");
  expect([&](void** comm) { return TypeParam::Accept(nullptr, comm); },
         "accept: the listener is null");
  if constexpr (TypeParam::kHasContext) {
    expect([&](void** comm) { return TypeParam::Listen(nullptr, 0, handle, comm); },
           "listen: the context is null");
    expect([&](void** comm) { return TypeParam::Connect(nullptr, 0, nullptr, handle, comm); },
           "connect: the context is null");
  }
  const std::string no_comm = ": the pointer to the comm is null";
  this->ExpectRefused(TypeParam::Listen(this->context_, 0, handle, nullptr), "listen" + no_comm);
  this->ExpectRefused(TypeParam::Connect(this->context_, 0, nullptr, handle, nullptr),
                      "connect" + no_comm);
  this->ExpectRefused(TypeParam::Accept(&this->below().listener, nullptr), "accept" + no_comm);
}

TYPED_TEST(ConnectionTest, AcceptIsAskedUntilSomebodyComes) {
  void* const listener = &this->below().listener;
  this->below().ready = false;
  void* comm = &comm;
  ASSERT_EQ(TypeParam::Accept(listener, &comm, nullptr), abi::kSuccess);
  EXPECT_EQ(comm, nullptr);
  this->below().ready = true;
  ASSERT_EQ(TypeParam::Accept(listener, &comm), abi::kSuccess);
  EXPECT_EQ(comm, this->receiver());
  EXPECT_EQ(this->below().asked_of, listener);
  EXPECT_EQ(TypeParam::kNet.close_recv(comm), abi::kSuccess);
  EXPECT_EQ(this->below().closed, std::vector<const void*>{comm});
}

TYPED_TEST(ConnectionTest, FailuresBelowArePassedOnAndNotLoggedAgain) {
  this->below().result = abi::kRemoteError;
  void* comm = &comm;
  EXPECT_EQ(TypeParam::Listen(this->context_, 0, this->handle_.data(), &comm), abi::kRemoteError);
  EXPECT_EQ(comm, nullptr);
  comm = &comm;
  EXPECT_EQ(TypeParam::Connect(this->context_, 0, nullptr, this->handle_.data(), &comm),
            abi::kRemoteError);
  EXPECT_EQ(comm, nullptr);
  comm = &comm;
  EXPECT_EQ(TypeParam::Accept(&this->below().listener, &comm), abi::kRemoteError);
  EXPECT_EQ(comm, nullptr);
  char byte = 0;
  void* request = &request;
  EXPECT_EQ(TypeParam::Isend(this->sender(), &byte, 1, &request), abi::kRemoteError);
  EXPECT_EQ(request, nullptr);
  request = &request;
  EXPECT_EQ(this->Irecv(&byte, 1, &request), abi::kRemoteError);
  EXPECT_EQ(request, nullptr);
  int done = 1;
  int size = 55;
  EXPECT_EQ(TypeParam::kNet.test(&this->below().request, &done, &size), abi::kRemoteError);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(size, 55);
  EXPECT_EQ(TypeParam::kNet.close_send(this->sender()), abi::kRemoteError);
  EXPECT_EQ(TypeParam::kNet.close_recv(this->receiver()), abi::kRemoteError);
  EXPECT_EQ(TypeParam::kNet.close_listen(&this->below().listener), abi::kRemoteError);
  EXPECT_TRUE(TakeLog().empty());
}

TYPED_TEST(ConnectionTest, HostMemoryNeedsNoRegistration) {
  std::array<char, 16> memory = {};
  for (void* const comm : {this->sender(), this->receiver()}) {
    void* mhandle = &mhandle;
    EXPECT_EQ(TypeParam::kNet.reg_mr(comm, memory.data(), 16, abi::kPointerHost, &mhandle),
              abi::kSuccess);
    EXPECT_EQ(mhandle, nullptr);
    EXPECT_EQ(TypeParam::kNet.dereg_mr(comm, mhandle), abi::kSuccess);
    EXPECT_EQ(TypeParam::kNet.reg_mr(comm, nullptr, 0, abi::kPointerHost, &mhandle), abi::kSuccess);
  }
}

TYPED_TEST(ConnectionTest, OtherMemoryIsRefused) {
  char byte = 0;
  for (const int type : {abi::kPointerCuda, abi::kPointerDmaBuf, 0}) {
    void* mhandle = &mhandle;
    this->ExpectRefused(
        TypeParam::kNet.reg_mr(this->sender(), &byte, 1, type, &mhandle),
        "regMr: memory of type " + std::to_string(type) + ", but ptrSupport is 1 (host)");
    EXPECT_EQ(mhandle, nullptr);
  }
  void* mhandle = nullptr;
  this->ExpectRefused(TypeParam::kNet.reg_mr(nullptr, &byte, 1, abi::kPointerHost, &mhandle),
                      "regMr: the connection is null");
}

TYPED_TEST(ConnectionTest, IsendHandsOverItsBuffer) {
  std::array<char, 100> data = {};
  void* request = nullptr;
  ASSERT_EQ(TypeParam::Isend(this->sender(), data.data(), 100, &request), abi::kSuccess);
  EXPECT_EQ(request, &this->below().request);
  EXPECT_EQ(this->below().asked_of, this->sender());
  EXPECT_EQ(this->below().data, data.data());
  EXPECT_EQ(this->below().bytes, 100U);
  this->below().ready = false;
  ASSERT_EQ(TypeParam::Isend(this->sender(), data.data(), 100, &request), abi::kSuccess);
  EXPECT_EQ(request, nullptr) << "not now";
}

TYPED_TEST(ConnectionTest, ZeroBytesNeedNoBuffer) {
  void* request = nullptr;
  ASSERT_EQ(TypeParam::Isend(this->sender(), nullptr, 0, &request), abi::kSuccess);
  EXPECT_EQ(request, &this->below().request);
  request = nullptr;
  ASSERT_EQ(this->Irecv(nullptr, 0, &request), abi::kSuccess);
  EXPECT_EQ(request, &this->below().request);
  EXPECT_EQ(this->below().bytes, 0U);
  EXPECT_EQ(this->below().calls, 2);
}

TYPED_TEST(ConnectionTest, IsendChecksItsArguments) {
  char byte = 0;
  void* request = &request;
  this->ExpectRefused(TypeParam::Isend(nullptr, &byte, 1, &request),
                      "isend: the connection is null");
  EXPECT_EQ(request, nullptr);
  request = &request;
  this->ExpectRefused(TypeParam::Isend(this->sender(), nullptr, 1, &request),
                      "isend: the buffer is null");
  EXPECT_EQ(request, nullptr);
  this->ExpectRefused(TypeParam::Isend(this->sender(), &byte, 1, nullptr),
                      "isend: the pointer to the request is null");
}

TYPED_TEST(ConnectionTest, SizesThatNobodyHas) {
  // -1 as an int up to v8, and as a size that is too large since v9.
  using Size = typename TypeParam::SizeInMessages;
  std::vector<Size> sizes = {static_cast<Size>(-1)};
  if constexpr (sizeof(Size) == 8) {
    sizes.push_back((size_t{1} << 40U) + 1);
  } else {
    sizes.push_back(INT_MIN);
  }
  char byte = 0;
  for (const Size size : sizes) {
    const std::string words =
        "invalid size of " + std::to_string(static_cast<int64_t>(size)) + " bytes";
    void* request = &request;
    this->ExpectRefused(TypeParam::Isend(this->sender(), &byte, size, &request), "isend: " + words);
    EXPECT_EQ(request, nullptr);
    request = &request;
    this->ExpectRefused(this->Irecv(&byte, size, &request), "irecv: " + words);
    EXPECT_EQ(request, nullptr);
  }
}

TYPED_TEST(ConnectionTest, TheLargestSize) {
  using Size = typename TypeParam::SizeInMessages;
  const Size largest = sizeof(Size) == 8 ? static_cast<Size>(size_t{1} << 40U) : INT_MAX;
  char byte = 0;
  void* request = nullptr;
  EXPECT_EQ(TypeParam::Isend(this->sender(), &byte, largest, &request), abi::kSuccess);
  EXPECT_EQ(this->below().bytes, static_cast<size_t>(largest));
  EXPECT_EQ(this->Irecv(&byte, largest, &request), abi::kSuccess);
  EXPECT_EQ(this->below().bytes, static_cast<size_t>(largest));
}

TYPED_TEST(ConnectionTest, IrecvTakesOneBufferWithAnyTag) {
  std::array<char, 100> memory = {};
  void* data = memory.data();
  typename TypeParam::SizeInMessages size = 100;
  void* request = nullptr;
  ASSERT_EQ(TypeParam::Irecv(this->receiver(), 1, &data, &size, nullptr, &request), abi::kSuccess);
  EXPECT_EQ(request, &this->below().request);
  EXPECT_EQ(this->below().asked_of, this->receiver());
  EXPECT_EQ(this->below().data, memory.data());
  EXPECT_EQ(this->below().bytes, 100U);
}

TYPED_TEST(ConnectionTest, IrecvRefusesGroups) {
  std::array<char, 16> memory = {};
  std::array<void*, 8> data = {};
  data.fill(memory.data());
  std::array<typename TypeParam::SizeInMessages, 8> sizes = {};
  std::array<int, 8> tags = {};
  for (const int count : {-1, 0, 2, 8}) {
    void* request = &request;
    this->ExpectRefused(
        TypeParam::Irecv(this->receiver(), count, data.data(), sizes.data(), tags.data(), &request),
        "irecv: " + std::to_string(count) + " buffers, but maxRecvs is 1");
    EXPECT_EQ(request, nullptr);
  }
}

TYPED_TEST(ConnectionTest, IrecvNeverLeavesTheMarkOfOptionalCompletion) {
  char byte = 0;
  const auto mark = reinterpret_cast<void*>(abi::kNetOptionalReceiveCompletion);
  void* request = mark;
  this->below().ready = false;
  ASSERT_EQ(this->Irecv(&byte, 1, &request), abi::kSuccess);
  EXPECT_EQ(request, nullptr) << "NCCL would take the mark for a request";
  request = mark;
  this->below().ready = true;
  ASSERT_EQ(this->Irecv(&byte, 1, &request), abi::kSuccess);
  EXPECT_EQ(request, &this->below().request);
  request = mark;
  this->below().result = abi::kSystemError;
  EXPECT_EQ(this->Irecv(&byte, 1, &request), abi::kSystemError);
  EXPECT_EQ(request, nullptr);
}

TYPED_TEST(ConnectionTest, IrecvChecksItsArguments) {
  char byte = 0;
  void* data = &byte;
  typename TypeParam::SizeInMessages size = 1;
  int tag = 0;
  void* request = &request;
  this->ExpectRefused(TypeParam::Irecv(nullptr, 1, &data, &size, &tag, &request),
                      "irecv: the connection is null");
  EXPECT_EQ(request, nullptr);
  this->ExpectRefused(TypeParam::Irecv(this->receiver(), 1, nullptr, &size, &tag, &request),
                      "irecv: the list of buffers is null");
  this->ExpectRefused(TypeParam::Irecv(this->receiver(), 1, &data, nullptr, &tag, &request),
                      "irecv: the list of buffers is null");
  this->ExpectRefused(TypeParam::Irecv(this->receiver(), 1, &data, &size, &tag, nullptr),
                      "irecv: the pointer to the request is null");
  this->ExpectRefused(this->Irecv(nullptr, 1, &request), "irecv: the buffer is null");
}

TYPED_TEST(ConnectionTest, IflushIsAnError) {
  char byte = 0;
  void* data = &byte;
  int size = 1;
  void* mhandle = nullptr;
  void* request = &request;
  EXPECT_EQ(TypeParam::kNet.iflush(this->receiver(), 1, &data, &size, &mhandle, &request),
            abi::kInternalError);
  EXPECT_EQ(request, nullptr);
  this->ExpectOneWarning("iflush: the plugin does not receive into GPU memory");
}

TYPED_TEST(ConnectionTest, TestReportsTheSizeOnlyAtTheEnd) {
  void* const request = &this->below().request;
  this->below().transferred = 4096;
  this->below().ready = false;
  int done = 1;
  int size = 55;
  ASSERT_EQ(TypeParam::kNet.test(request, &done, &size), abi::kSuccess);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(size, 55);
  this->below().ready = true;
  ASSERT_EQ(TypeParam::kNet.test(request, &done, &size), abi::kSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(size, 4096);
  EXPECT_EQ(this->below().asked_of, request);
  ASSERT_EQ(TypeParam::kNet.test(request, &done, nullptr), abi::kSuccess);
  EXPECT_EQ(done, 1);
  this->below().transferred = size_t{5} << 30U;
  ASSERT_EQ(TypeParam::kNet.test(request, &done, &size), abi::kSuccess);
  EXPECT_EQ(size, INT_MAX);
}

TYPED_TEST(ConnectionTest, TestChecksItsPointers) {
  int done = 1;
  this->ExpectRefused(TypeParam::kNet.test(nullptr, &done, nullptr), "test: the request is null");
  EXPECT_EQ(done, 0);
  this->ExpectRefused(TypeParam::kNet.test(&this->below().request, nullptr, nullptr),
                      "test: the pointer to the answer is null");
}

TYPED_TEST(ConnectionTest, ClosingNothingIsFine) {
  EXPECT_EQ(TypeParam::kNet.close_send(nullptr), abi::kSuccess);
  EXPECT_EQ(TypeParam::kNet.close_recv(nullptr), abi::kSuccess);
  EXPECT_EQ(TypeParam::kNet.close_listen(nullptr), abi::kSuccess);
  EXPECT_TRUE(TakeLog().empty());
}

// Communicators start and end in several threads while others transfer; most useful with the thread
// sanitizer.

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
