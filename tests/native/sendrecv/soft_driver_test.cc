// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/soft_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace nccltune::sendrecv {
namespace {

// Number of seeds for tests that run a program once for each seed.
constexpr uint64_t kSeeds = 200;
constexpr size_t kBytes = 600;

using Bytes = std::vector<uint8_t>;

Bytes Content(SoftDriver& driver, DeviceAddress at, size_t bytes = kBytes) {
  Bytes content(bytes);
  EXPECT_TRUE(driver.Read(at, content.data(), bytes));
  return content;
}

DeviceAddress Filled(SoftDriver& driver, uint8_t with, size_t bytes = kBytes) {
  const DeviceAddress at = driver.Allocate(bytes);
  EXPECT_TRUE(driver.Write(at, Bytes(bytes, with).data(), bytes));
  return at;
}

bool Torn(const Bytes& content) {
  return std::ranges::any_of(content, [&](uint8_t byte) { return byte != content.front(); });
}

bool Contains(const std::string& text, const std::vector<std::string>& parts) {
  return std::ranges::all_of(
      parts, [&](const std::string& part) { return text.find(part) != std::string::npos; });
}

TEST(SoftDriver, RunsAStreamInOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& driver = machine.Open(0);
    Stream stream = driver.NewStream();
    const DeviceAddress a = Filled(driver, 1);
    const DeviceAddress b = Filled(driver, 2);
    const DeviceAddress c = Filled(driver, 3);
    Flag flag = 0;
    std::vector<Bytes> seen;
    EXPECT_TRUE(driver.Copy(stream, b, a, kBytes));
    EXPECT_TRUE(driver.Kernel(stream, [&] { seen.push_back(Content(driver, b)); }));
    EXPECT_TRUE(driver.Copy(stream, a, c, kBytes));
    EXPECT_TRUE(driver.Copy(stream, b, a, kBytes));
    EXPECT_TRUE(driver.WriteValue(stream, flag, 7));
    EXPECT_TRUE(driver.WaitValue(stream, flag, 7));
    EXPECT_TRUE(driver.Kernel(stream, [&] { seen.push_back(Content(driver, b)); }));
    Random random(seed);
    ASSERT_TRUE(machine.Run(random));
    EXPECT_EQ(seen, (std::vector<Bytes>{Bytes(kBytes, 1), Bytes(kBytes, 3)})) << seed;
    EXPECT_EQ(flag.load(), 7u);
    EXPECT_TRUE(machine.Errors().empty());
  }
}

TEST(SoftDriver, RunsStreamsBesideEachOther) {
  bool first_was_first = false;
  bool second_was_first = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& driver = machine.Open(0);
    Stream first = driver.NewStream();
    Stream second = driver.NewStream();
    std::vector<int> order;
    driver.Kernel(first, [&] { order.push_back(1); });
    driver.Kernel(second, [&] { order.push_back(2); });
    Random random(seed);
    ASSERT_TRUE(machine.Run(random));
    ASSERT_EQ(order.size(), 2u);
    (order[0] == 1 ? first_was_first : second_was_first) = true;
  }
  EXPECT_TRUE(first_was_first);
  EXPECT_TRUE(second_was_first);
}

TEST(SoftDriver, RunsTheSameAgainFromTheSameSeed) {
  const auto run = [](uint64_t seed) {
    Random random(seed);
    SoftMachine machine({.gpus = 2, .hardware_queues = 3});
    std::vector<int> order;
    std::vector<Flag> flags(8);
    for (int gpu = 0; gpu < 2; ++gpu) {
      SoftDriver& driver = machine.Open(gpu);
      const DeviceAddress a = Filled(driver, 1);
      const DeviceAddress b = Filled(driver, 2);
      for (int i = 0; i < 4; ++i) {
        Stream stream = driver.NewStream();
        const int number = gpu * 4 + i;
        for (int j = 0; j < 10; ++j) {
          driver.Copy(stream, random() % 2 == 0 ? a : b, a, kBytes);
          driver.Kernel(stream, [&order, &driver, number, b] {
            order.push_back(number);
            order.push_back(Content(driver, b).back());
          });
          driver.WriteValue(stream, flags[static_cast<size_t>(number)], static_cast<uint32_t>(j));
        }
      }
    }
    EXPECT_TRUE(machine.Run(random));
    EXPECT_EQ(order.size(), 160u);
    return order;
  };
  const std::vector<int> once = run(1);
  EXPECT_EQ(once, run(1));
  EXPECT_NE(once, run(2));
}

// One stream copies and then writes a flag; the other reads. Returns how often, over all seeds, the
// reader saw a partial copy.
size_t TimesTorn(bool waits) {
  size_t torn = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& sender = machine.Open(0);
    SoftDriver& receiver = machine.Open(1);
    Stream sends = sender.NewStream();
    Stream receives = receiver.NewStream();
    const DeviceAddress from = Filled(sender, 5);
    const DeviceAddress to = Filled(receiver, 0);
    Flag done = 0;
    sender.Copy(sends, sender.Import(receiver, to), from, kBytes);
    sender.WriteValue(sends, done, 1);
    if (waits) receiver.WaitValue(receives, done, 1);
    Bytes seen;
    receiver.Kernel(receives, [&] { seen = Content(receiver, to); });
    Random random(seed);
    EXPECT_TRUE(machine.Run(random));
    EXPECT_TRUE(machine.Errors().empty());
    if (Torn(seen)) ++torn;
    if (waits) {
      EXPECT_EQ(seen, Bytes(kBytes, 5)) << seed;
    }
    EXPECT_EQ(Content(receiver, to), Bytes(kBytes, 5)) << seed;
  }
  return torn;
}

TEST(SoftDriver, ShowsTornBytesToWhoDoesNotWait) { EXPECT_GT(TimesTorn(false), 10u); }

TEST(SoftDriver, ShowsWholeMessagesToWhoWaits) { EXPECT_EQ(TimesTorn(true), 0u); }

// Two streams, of one GPU or of two, copy. Returns whether both copies ever ran at the same time.
bool EverBothCopy(bool of_one_gpu) {
  bool both = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& first = machine.Open(0);
    SoftDriver& second = machine.Open(of_one_gpu ? 0 : 1);
    const DeviceAddress to_first = Filled(first, 0);
    const DeviceAddress to_second = Filled(second, 0);
    first.Copy(first.NewStream(), to_first, Filled(first, 1), kBytes);
    second.Copy(second.NewStream(), to_second, Filled(second, 1), kBytes);
    Random random(seed);
    while (machine.Step(random)) {
      both |= Torn(Content(first, to_first)) && Torn(Content(second, to_second));
    }
    EXPECT_EQ(Content(first, to_first), Bytes(kBytes, 1));
    EXPECT_EQ(Content(second, to_second), Bytes(kBytes, 1));
  }
  return both;
}

TEST(SoftDriver, HasOneCopyEngineForEachGpu) {
  EXPECT_FALSE(EverBothCopy(true));
  EXPECT_TRUE(EverBothCopy(false));
}

TEST(SoftDriver, HasACopyEngineThatStaysWithAStreamThatCopies) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& driver = machine.Open(0);
    const DeviceAddress to = Filled(driver, 0);
    const DeviceAddress from = Filled(driver, 1);
    const DeviceAddress last = Filled(driver, 0);
    Stream many = driver.NewStream();
    for (int i = 0; i < 10; ++i) driver.Copy(many, i < 9 ? to : last, from, kBytes);
    Random random(seed);
    while (Content(driver, to).front() == 0 && machine.Step(random)) {
    }
    const DeviceAddress beside = Filled(driver, 0);
    driver.Copy(driver.NewStream(), beside, from, kBytes);
    while (Content(driver, beside) != Bytes(kBytes, 1) && machine.Step(random)) {
    }
    EXPECT_EQ(Content(driver, last), Bytes(kBytes, 1)) << seed;
  }
}

// One stream waits for a value that a later stream writes. Returns the streams that are stuck then.
std::vector<Waiting> WaitThenWrite(size_t hardware_queues, Flag& flag) {
  SoftMachine machine({.hardware_queues = hardware_queues});
  SoftDriver& driver = machine.Open(0);
  Stream waits = driver.NewStream();
  Stream writes = driver.NewStream();
  driver.WaitValue(waits, flag, 1);
  driver.WriteValue(writes, flag, 1);
  Random random(1);
  EXPECT_EQ(machine.Run(random), hardware_queues != 1);
  return machine.Stuck();
}

TEST(SoftDriver, KeepsWaitingWhatIsBehindAWaitInAHardwareQueue) {
  for (const size_t queues : {0u, 2u}) {
    Flag flag = 0;
    EXPECT_TRUE(WaitThenWrite(queues, flag).empty()) << queues;
    EXPECT_EQ(flag.load(), 1u);
  }
  Flag flag = 0;
  const std::vector<Waiting> stuck = WaitThenWrite(1, flag);
  ASSERT_EQ(stuck.size(), 2u);
  EXPECT_EQ(stuck[0].flag, &flag);
  EXPECT_EQ(stuck[1].flag, nullptr);
  EXPECT_TRUE(Contains(stuck[1].what, {"stream 2", "is behind GPU 0, stream 1"})) << stuck[1];
}

TEST(SoftDriver, LetsWhatIsBehindAKernelRun) {
  SoftMachine machine({.hardware_queues = 1});
  SoftDriver& driver = machine.Open(0);
  Stream first = driver.NewStream();
  Stream second = driver.NewStream();
  std::atomic<int> met = 0;
  driver.Kernel(first, [] {}, [&] { return met > 0; });
  driver.Kernel(second, [&] { ++met; });
  Random random(1);
  EXPECT_TRUE(machine.Run(random));
  driver.Kernel(first, [] {}, [&] { return met > 1; });
  EXPECT_FALSE(machine.Run(random));
  ASSERT_EQ(machine.Stuck().size(), 1u);
  EXPECT_TRUE(Contains(machine.Stuck()[0].what, {"stream 1", "a kernel waits"}));
}

TEST(SoftDriver, NamesAllStreamsThatWaitInACircle) {
  SoftMachine machine({});
  SoftDriver& one = machine.Open(0);
  SoftDriver& other = machine.Open(1);
  Stream a = one.NewStream();
  Stream b = other.NewStream();
  Stream done = one.NewStream();
  Flag from_one = 0;
  Flag from_other = 2;
  machine.Name(&from_one, "from one");
  machine.Name(b, "receives");
  one.WaitValue(a, from_other, 3);
  one.WriteValue(a, from_one, 9);
  other.WaitValue(b, from_one, 9);
  other.WriteValue(b, from_other, 3);
  one.Kernel(done, [] {});
  EXPECT_TRUE(machine.Stuck().empty()) << "a kernel can run yet";
  Random random(1);
  EXPECT_FALSE(machine.Run(random));
  const std::vector<Waiting> stuck = machine.Stuck();
  ASSERT_EQ(stuck.size(), 2u);
  EXPECT_EQ(stuck[0].gpu, 0);
  EXPECT_EQ(stuck[0].stream, a);
  EXPECT_EQ(stuck[0].flag, &from_other);
  EXPECT_EQ(stuck[0].value, 3u);
  EXPECT_TRUE(Contains(stuck[0].what, {"GPU 0, stream 1", "to reach 3, it is 2"})) << stuck[0];
  EXPECT_EQ(stuck[1].gpu, 1);
  EXPECT_EQ(stuck[1].stream, b);
  EXPECT_EQ(stuck[1].flag, &from_one);
  EXPECT_EQ(stuck[1].value, 9u);
  EXPECT_TRUE(Contains(stuck[1].what, {"(receives)", "flag from one to reach 9, it is 0"}))
      << stuck[1];
  // The test itself writes the flag, as an abort does.
  from_one = 9;
  EXPECT_TRUE(machine.Stuck().empty());
  EXPECT_TRUE(machine.Run(random));
}

TEST(SoftDriver, ComparesValuesInACircle) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  Stream waits = driver.NewStream();
  Flag flag = 0xFFFFFFFE;
  Random random(1);
  driver.WaitValue(waits, flag, 1);
  EXPECT_FALSE(machine.Run(random));
  driver.WriteValue(driver.NewStream(), flag, 3);
  EXPECT_TRUE(machine.Run(random));
  driver.WaitValue(waits, flag, 0xFFFFFFFF);
  EXPECT_TRUE(machine.Run(random));
  driver.WaitValue(waits, flag, 4);
  EXPECT_FALSE(machine.Run(random));
}

TEST(SoftDriver, WaitsForWhatAnEventRecordedLast) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& driver = machine.Open(0);
    SoftDriver& beside = machine.Open(1, driver);
    Stream records = driver.NewStream();
    Stream waits = beside.NewStream();
    Event event = driver.NewEvent();
    std::vector<int> order;
    EXPECT_TRUE(beside.WaitEvent(waits, event)) << "nothing was recorded";
    driver.Kernel(records, [&] { order.push_back(1); });
    EXPECT_TRUE(driver.Record(event, records));
    driver.Kernel(records, [&] { order.push_back(2); });
    EXPECT_TRUE(driver.Record(event, records));
    EXPECT_TRUE(beside.WaitEvent(waits, event));
    beside.Kernel(waits, [&] { order.push_back(3); });
    Flag never = 0;
    driver.WaitValue(records, never, 1);
    // The wait does not include what is recorded after it.
    EXPECT_TRUE(driver.Record(event, records));
    driver.DeleteEvent(event);
    Random random(seed);
    EXPECT_FALSE(machine.Run(random));
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3})) << seed;
    EXPECT_TRUE(machine.Errors().empty());
  }
}

TEST(SoftDriver, NamesTheStreamOfAnEventThatNeverComes) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  Stream records = driver.NewStream();
  Stream waits = driver.NewStream();
  Event event = driver.NewEvent();
  Flag never = 0;
  driver.WaitValue(records, never, 1);
  driver.Record(event, records);
  driver.WaitEvent(waits, event);
  Random random(1);
  EXPECT_FALSE(machine.Run(random));
  const std::vector<Waiting> stuck = machine.Stuck();
  ASSERT_EQ(stuck.size(), 2u);
  EXPECT_EQ(stuck[0].flag, &never);
  EXPECT_TRUE(Contains(stuck[1].what, {"stream 2", "an event of stream 1"})) << stuck[1];
}

TEST(SoftDriver, ReportsWildCopiesAndGoesOn) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  SoftDriver& peer = machine.Open(1);
  const DeviceAddress own = Filled(driver, 1);
  const DeviceAddress foreign = Filled(peer, 2);
  const DeviceAddress imported = driver.Import(peer, foreign);
  const DeviceAddress freed = Filled(driver, 3);
  driver.Free(freed);
  Stream stream = driver.NewStream();
  Random random(1);
  const auto error = [&](DeviceAddress to, DeviceAddress from, size_t bytes) {
    const size_t before = machine.Errors().size();
    Flag done = 0;
    EXPECT_TRUE(driver.Copy(stream, to, from, bytes));
    EXPECT_TRUE(driver.WriteValue(stream, done, 1));
    EXPECT_TRUE(machine.Run(random));
    EXPECT_EQ(done.load(), 1u);
    const std::vector<std::string> errors = machine.Errors();
    return errors.size() == before ? std::string() : errors.back();
  };
  EXPECT_EQ(error(own, imported, kBytes), "");
  EXPECT_EQ(Content(driver, own), Bytes(kBytes, 2));
  std::string text = error(own, imported + 1, kBytes);
  EXPECT_TRUE(Contains(text, {"GPU 0, stream 1: copy of 600 bytes", "source: 1 bytes past the end",
                              "allocation 2 (600 bytes on GPU 1"}))
      << text;
  text = error(foreign, own, 1);
  EXPECT_TRUE(Contains(text, {"destination: not reachable: allocation 2"})) << text;
  text = error(freed, own, 1);
  EXPECT_TRUE(Contains(text, {"destination: allocation 3", "was freed"})) << text;
  peer.Free(foreign);
  text = error(own, imported, 1);
  EXPECT_TRUE(Contains(text, {"source: allocation 2", "was freed"})) << text;
  EXPECT_EQ(Content(driver, own), Bytes(kBytes, 2));
}

TEST(SoftDriver, ReportsMemoryThatIsFreedUnderACopy) {
  size_t errors = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& driver = machine.Open(0);
    const DeviceAddress from = Filled(driver, 1);
    const DeviceAddress to = Filled(driver, 2);
    driver.Copy(driver.NewStream(), to, from, kBytes);
    Random random(seed);
    while (machine.Step(random) && !Torn(Content(driver, to))) {
    }
    const bool under_way = Torn(Content(driver, to));
    driver.Free(from);
    EXPECT_TRUE(machine.Run(random));
    EXPECT_EQ(!machine.Errors().empty(), under_way) << seed;
    errors += machine.Errors().size();
  }
  EXPECT_GT(errors, kSeeds / 2);
}

TEST(SoftDriver, ReportsWildAccessByKernelsAndWrongCalls) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  SoftDriver& peer = machine.Open(1);
  const DeviceAddress own = Filled(driver, 1);
  uint8_t byte = 0;
  EXPECT_FALSE(driver.Read(own + kBytes, &byte, 1));
  EXPECT_FALSE(peer.Write(own, &byte, 1));
  driver.Free(own + 1);
  driver.Unmap(own);
  const std::vector<std::string> errors = machine.Errors();
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_TRUE(Contains(errors[0], {"GPU 0", "Read: 1 bytes at 0x", "past the end"})) << errors[0];
  EXPECT_TRUE(Contains(errors[1], {"GPU 1", "Write", "not reachable"})) << errors[1];
  EXPECT_TRUE(Contains(errors[2], {"Free"})) << errors[2];
  EXPECT_TRUE(Contains(errors[3], {"Unmap"})) << errors[3];
}

TEST(SoftDriver, RefusesStreamsAndEventsThatAreNotItsOwn) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  SoftDriver& other = machine.Open(0);
  Stream stream = driver.NewStream();
  Event event = driver.NewEvent();
  Flag flag = 0;
  EXPECT_FALSE(other.WriteValue(stream, flag, 1));
  EXPECT_FALSE(other.WaitEvent(other.NewStream(), event)) << "of another process";
  EXPECT_FALSE(other.Record(event, other.NewStream()));
  driver.DeleteEvent(event);
  EXPECT_FALSE(driver.Record(event, stream));
  driver.DeleteEvent(event);
  EXPECT_EQ(machine.Errors().size(), 5u);
  // Operations in a deleted stream still run.
  EXPECT_TRUE(driver.WriteValue(stream, flag, 2));
  driver.DeleteStream(stream);
  EXPECT_FALSE(driver.WriteValue(stream, flag, 3));
  EXPECT_EQ(machine.Errors().size(), 6u);
  Random random(1);
  EXPECT_TRUE(machine.Run(random));
  EXPECT_EQ(flag.load(), 2u);
  driver.DeleteStream(stream);
  EXPECT_EQ(machine.Errors().size(), 7u);
}

TEST(SoftEngine, ForgetsADeletedStreamWhenItHasRun) {
  SoftEngine engine(1, 0);
  engine.NewContext(0, 0, 0);
  Flag flag = 0;
  const uint64_t idle = engine.NewStream(0);
  const uint64_t busy = engine.NewStream(0);
  engine.Enqueue(busy, work::WriteValue{.flag = &flag, .value = 1});
  EXPECT_TRUE(engine.DeleteStream(idle));
  EXPECT_TRUE(engine.DeleteStream(busy));
  EXPECT_FALSE(engine.DeleteStream(busy));
  EXPECT_EQ(engine.streams(), 1u);
  EXPECT_FALSE(engine.Idle(busy));
  Random random(1);
  SoftEngine::Body body;
  EXPECT_TRUE(engine.Step(random, body));
  EXPECT_EQ(engine.streams(), 0u);
  EXPECT_TRUE(engine.Idle(busy));
  EXPECT_EQ(flag.load(), 1u);
  EXPECT_FALSE(engine.Step(random, body));
}

TEST(SoftDriver, RefusesWorkInAStreamUnderCapture) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  Stream stream = driver.NewStream();
  Flag flag = 0;
  EXPECT_FALSE(driver.Capturing(stream));
  driver.SetCapturing(stream, true);
  EXPECT_TRUE(driver.Capturing(stream));
  EXPECT_FALSE(driver.WriteValue(stream, flag, 1));
  EXPECT_EQ(machine.Errors().size(), 1u);
  driver.SetCapturing(stream, false);
  EXPECT_FALSE(driver.Capturing(stream));
  EXPECT_TRUE(driver.WriteValue(stream, flag, 1));
  EXPECT_EQ(machine.Errors().size(), 1u);
}

TEST(SoftDriver, RefusesOneCallWhereAsked) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  Stream stream = driver.NewStream();
  Event event = driver.NewEvent();
  Flag flag = 0;
  driver.RefuseAfter(2);
  EXPECT_TRUE(driver.WriteValue(stream, flag, 1));
  EXPECT_TRUE(driver.Record(event, stream));
  EXPECT_FALSE(driver.WriteValue(stream, flag, 2));
  EXPECT_TRUE(driver.WaitEvent(stream, event));
  driver.RefuseAfter(0);
  EXPECT_TRUE(driver.Kernel(stream, [] {}));
  EXPECT_FALSE(driver.Record(event, stream));
  driver.RefuseAfter(0);
  EXPECT_FALSE(driver.WaitEvent(stream, event));
  Random random(1);
  EXPECT_TRUE(machine.Run(random));
  EXPECT_EQ(flag.load(), 1u);
  EXPECT_TRUE(machine.Errors().empty());
}

TEST(SoftDriver, RunsNothingOfAProcessThatWasKilled) {
  size_t cut_short = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SoftMachine machine({});
    SoftDriver& dies = machine.Open(0);
    SoftDriver& with_it = machine.Open(1, dies);
    SoftDriver& lives = machine.Open(0);
    Stream copies = dies.NewStream();
    Stream waits = with_it.NewStream();
    Stream follows = lives.NewStream();
    const DeviceAddress own = Filled(lives, 3);
    const DeviceAddress to = Filled(lives, 0);
    const DeviceAddress theirs = lives.Import(dies, Filled(dies, 4));
    Flag done = 0;
    Flag never = 0;
    dies.Copy(copies, dies.Import(lives, to), Filled(dies, 1), kBytes);
    dies.WriteValue(copies, done, 1);
    with_it.WaitValue(waits, never, 1);
    lives.WaitValue(follows, done, 1);
    lives.Copy(lives.NewStream(), own, theirs, kBytes);
    Random random(seed);
    for (uint64_t i = 0; i < seed % 8; ++i) machine.Step(random);
    const uint32_t written = done;
    const Bytes content = Content(lives, to);
    if (Torn(content)) ++cut_short;
    dies.Kill();
    EXPECT_FALSE(dies.WriteValue(copies, done, 2));
    EXPECT_FALSE(with_it.WriteValue(waits, done, 2));
    EXPECT_TRUE(machine.Errors().empty());
    EXPECT_EQ(machine.Run(random), written == 1);
    EXPECT_EQ(done.load(), written);
    EXPECT_EQ(Content(lives, to), content);
    EXPECT_EQ(Content(lives, own), Bytes(kBytes, 4)) << "the copy engine goes on";
    EXPECT_EQ(machine.Stuck().size(), 1 - written);
    // A living process ends the wait.
    done = 1;
    EXPECT_TRUE(machine.Run(random));
    EXPECT_TRUE(machine.Errors().empty());
  }
  EXPECT_GT(cut_short, 10u);
}

TEST(SoftDriver, MakesTheStepsItselfToSynchronize) {
  SoftMachine machine({});
  SoftDriver& driver = machine.Open(0);
  Stream writes = driver.NewStream();
  Stream waits = driver.NewStream();
  Flag flag = 0;
  driver.WaitValue(waits, flag, 1);
  EXPECT_FALSE(driver.Synchronize(waits, std::chrono::hours(1)));
  driver.WriteValue(writes, flag, 1);
  EXPECT_TRUE(driver.Synchronize(waits));
  EXPECT_TRUE(driver.Synchronize(writes));
}

TEST(SoftDriver, IsDestroyedWithWorkPending) {
  for (const int threads : {0, 2}) {
    const auto held = std::make_shared<std::atomic<int>>(0);
    Flag never = 0;
    {
      SoftMachine machine({});
      SoftDriver& driver = machine.Open(0);
      Stream stream = driver.NewStream();
      Stream copies = driver.NewStream();
      machine.Start(threads);
      const DeviceAddress a = Filled(driver, 1);
      for (int i = 0; i < 100; ++i) driver.Copy(copies, Filled(driver, 2), a, kBytes);
      driver.WaitValue(stream, never, 1);
      driver.Kernel(stream, [held] { ++*held; });
      EXPECT_EQ(held.use_count(), 2);
    }
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_EQ(held->load(), 0);
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
