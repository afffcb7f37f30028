// SPDX-License-Identifier: Apache-2.0
#include "bench/player.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "bench/ending.h"
#include "bench/support.h"

namespace nccltune::bench {
namespace {

// A single player, whose conductor sends messages that a real one never sends.
TEST(Player, EndsWhenItsConductorTalksNonsense) {
  for (const MessageType type :
       {MessageType::kOpened, MessageType::kGathered, MessageType::kAbort}) {
    Sockets sockets = SocketPair();
    World world;
    world.processes = 2;
    world.process = 1;
    Script script;
    script.open = [](const World&, ProcessExchange*, BackendInfo*) {
      return std::optional<OpenError>();
    };
    Player player(world, std::make_unique<ScriptedBackend>(script), Wire(std::move(sockets.a)), {});
    Wire conductor(std::move(sockets.b));
    conductor.Send(type, "nonsense");
    std::string why;
    EXPECT_EQ(player.Run(&why), kFailed);
    EXPECT_NE(why.find("could not be read"), std::string::npos) << why;
    EXPECT_TRUE(player.lost_conductor());
  }
}

TEST(Player, ReportsWhyItLeaves) {
  Sockets sockets = SocketPair();
  const Descriptor event(eventfd(1, EFD_CLOEXEC));
  Player::Options options;
  options.interrupt = event.fd();
  options.why_interrupted = [] { return std::string("it was ended by SIGTERM"); };
  options.interrupted_status = [] { return 143; };
  int forced = 0;
  options.ending = [&forced](int status) { forced = status; };
  Player player(World(), std::make_unique<ScriptedBackend>(Script()), Wire(std::move(sockets.a)),
                options);
  std::string why;
  EXPECT_EQ(player.Run(&why), 143);
  EXPECT_EQ(forced, 143);
  EXPECT_FALSE(player.lost_conductor());
  Wire conductor(std::move(sockets.b));
  std::vector<Message> messages;
  conductor.Receive(&messages);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].type, MessageType::kLeaving);
  EXPECT_EQ(messages[0].payload, "it was ended by SIGTERM");
}

}  // namespace
}  // namespace nccltune::bench
