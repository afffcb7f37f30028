// SPDX-License-Identifier: Apache-2.0
//
// Other copies must be able to run between the pieces of a message.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "sendrecv/group/group.h"
#include "sendrecv/native_model.h"
#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kLargeMessage = 3000;
constexpr uint64_t kOtherCopy = 10;

// A sender and a receiver with one message in progress, when another stream starts a copy.
class BusySender {
 public:
  explicit BusySender(uint64_t piece) { policy_.piece = piece; }

  // Returns how many bytes of the message had arrived when the other copy was complete.
  uint64_t ArrivedWithTheOther(uint64_t seed) {
    Random random(seed);
    Run(Role::kReceiver, receiver_, to_);
    Run(Role::kSender, sender_, from_);
    while (PostedMessage() == 0 && machine_.Step(random)) {
    }
    const DeviceAddress other = receiver_.Allocate(kOtherCopy);
    sender_.Copy(sender_.NewStream(), sender_.Import(receiver_, other), from_, kOtherCopy);
    while (Count(other, kOtherCopy) < kOtherCopy && machine_.Step(random)) {
    }
    const uint64_t posted = PostedMessage();
    EXPECT_TRUE(machine_.Run(random));
    EXPECT_EQ(PostedMessage(), kLargeMessage);
    EXPECT_TRUE(machine_.Errors().empty());
    return posted;
  }

 private:
  void Run(Role role, SoftDriver& driver, DeviceAddress at) {
    LaneEnd& end = role == Role::kSender ? sends_ : receives_;
    Port& port = role == Role::kSender ? sender_port_ : receiver_port_;
    port.end = &end;
    port.resolve = [this](uint64_t, uint64_t, uint64_t) { return sender_.Import(receiver_, to_); };
    port.map_new = [] {};
    const GroupMessage message = {
        .port = &port, .address = at, .bytes = kLargeMessage, .allocation = 1, .can_copy = true};
    const GroupContext context = {
        .policy = policy_,
        .wait_for_receiver = [](uint64_t) { return false; },
        .wait_for_capture = [] { return false; },
        .start_native =
            [](const std::vector<std::vector<size_t>>&) { return NativeStart::kComplete; },
    };
    const GroupOutcome outcome = RunGroup(
        {{.messages = {message}, .stream = driver.NewStream(), .driver = &driver}}, context);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.messages[0][0].path, Path::kPushed);
  }

  uint64_t Count(DeviceAddress at, uint64_t bytes) {
    std::vector<uint8_t> content(bytes);
    EXPECT_TRUE(receiver_.Read(at, content.data(), bytes));
    return static_cast<uint64_t>(std::ranges::count(content, 1));
  }
  uint64_t PostedMessage() { return Count(to_, kLargeMessage); }

  static DeviceAddress Filled(SoftDriver& driver, uint8_t with) {
    const DeviceAddress at = driver.Allocate(kLargeMessage);
    EXPECT_TRUE(driver.Write(at, std::vector<uint8_t>(kLargeMessage, with).data(), kLargeMessage));
    return at;
  }

  // Sends wait for their receives, so nothing is staged.
  Policy policy_ = {.sends_may_wait = true};
  SoftMachine machine_{{.delay_bits = 0}};
  SoftDriver& sender_ = machine_.Open(0);
  SoftDriver& receiver_ = machine_.Open(1);
  DeviceAddress from_ = Filled(sender_, 1);
  DeviceAddress to_ = Filled(receiver_, 0);
  std::unique_ptr<LaneMemory> memory_ = std::make_unique<LaneMemory>();
  OpenedGate gate_;
  LaneEnd sends_{*memory_, gate_.memory, Role::kSender};
  LaneEnd receives_{*memory_, gate_.memory, Role::kReceiver};
  Port sender_port_;
  Port receiver_port_;
};

TEST(Fairness, OthersComeBetweenThePiecesOfAMessage) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_LT(BusySender(100).ArrivedWithTheOther(seed), kLargeMessage) << seed;
    EXPECT_EQ(BusySender(0).ArrivedWithTheOther(seed), kLargeMessage) << seed;
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
