// SPDX-License-Identifier: Apache-2.0
//
// A software machine that threads drive, beside threads that enqueue.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {
namespace {

// A limit that is never reached: the test program's own timeout comes first.
constexpr std::chrono::hours kEver(1);

TEST(SoftMachine, IsStuckOnlyWhenNoHostIsLeft) {
  SoftMachine machine({});
  machine.Start(2);
  SoftDriver& driver = machine.Open(0);
  Stream stream = driver.NewStream();
  Flag flag = 0;
  driver.WaitValue(stream, flag, 1);
  std::promise<void> there;
  std::promise<void> leave;
  std::thread host([&] {
    const SoftMachine::Host registered(machine);
    there.set_value();
    leave.get_future().wait();
  });
  there.get_future().wait();
  EXPECT_FALSE(driver.Synchronize(stream, std::chrono::milliseconds(5)));
  EXPECT_TRUE(machine.Stuck().empty()) << "the host may write the flag";
  leave.set_value();
  EXPECT_FALSE(driver.Synchronize(stream, kEver));
  host.join();
  const std::vector<Waiting> stuck = machine.Stuck();
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(stuck[0].flag, &flag);
  EXPECT_EQ(stuck[0].stream, stream);
}

TEST(SoftMachine, IsStuckThoughHostsSynchronize) {
  SoftMachine machine({});
  machine.Start(2);
  Flag flag = 0;
  machine.RunHosts(2, [&](int gpu) {
    SoftDriver& driver = machine.Open(gpu);
    Stream stream = driver.NewStream();
    driver.WaitValue(stream, flag, 1);
    EXPECT_FALSE(driver.Synchronize(stream, kEver));
  });
  EXPECT_EQ(machine.Stuck().size(), 2u);
}

TEST(SoftMachine, IsNotStuckWhileAKernelRuns) {
  SoftMachine machine({});
  machine.Start(1);
  SoftDriver& driver = machine.Open(0);
  Stream runs = driver.NewStream();
  Stream waits = driver.NewStream();
  Flag flag = 0;
  std::promise<void> began;
  std::promise<void> end;
  driver.WaitValue(waits, flag, 1);
  driver.Kernel(runs, [&] {
    began.set_value();
    end.get_future().wait();
  });
  driver.WriteValue(runs, flag, 1);
  began.get_future().wait();
  EXPECT_TRUE(machine.Stuck().empty());
  EXPECT_FALSE(driver.Synchronize(waits, std::chrono::milliseconds(1)));
  end.set_value();
  EXPECT_TRUE(driver.Synchronize(waits, kEver));
}

TEST(SoftMachine, SeesAFlagThatAHostWrites) {
  SoftMachine machine({});
  machine.Start(2);
  SoftDriver& driver = machine.Open(0);
  Stream other = driver.NewStream();
  Stream stream = driver.NewStream();
  Flag flag = 0;
  driver.WaitValue(stream, flag, 1);
  std::promise<void> there;
  std::thread host([&] {
    const SoftMachine::Host registered(machine);
    there.set_value();
    // Between two of these steps, nothing can run until the next thread arrives.
    for (int i = 0; i < 100; ++i) {
      std::promise<void> ran;
      driver.Kernel(other, [&ran] { ran.set_value(); });
      ran.get_future().wait();
      std::this_thread::yield();
    }
    flag.store(1);
  });
  there.get_future().wait();
  EXPECT_TRUE(driver.Synchronize(stream, kEver));
  host.join();
}

// A ring of ranks, each in its own thread. Each sends to the next and receives from the previous
// rank. The receiver's stream writes that it is ready; the sender's stream copies and writes that
// it is done.
class Ring {
 public:
  explicit Ring(size_t hardware_queues)
      : machine_({.gpus = kRanks, .hardware_queues = hardware_queues}),
        ready_(kRanks),
        done_(kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      drivers_.push_back(&machine_.Open(rank));
      from_.push_back(drivers_.back()->Allocate(kBytes));
      to_.push_back(drivers_.back()->Allocate(kBytes));
    }
    machine_.Start(3);
  }

  void Run() {
    machine_.RunHosts(kRanks, [this](int rank) { Rank(static_cast<size_t>(rank)); });
    EXPECT_TRUE(machine_.Stuck().empty());
    EXPECT_EQ(machine_.Errors(), std::vector<std::string>());
    EXPECT_EQ(right_, kRanks * kMessages);
  }

 private:
  static constexpr int kRanks = 4;
  static constexpr uint32_t kMessages = 25;
  static constexpr size_t kBytes = 3000;

  static uint8_t Value(size_t rank, uint32_t message) {
    return static_cast<uint8_t>(rank * 50 + message);
  }

  void Rank(size_t rank) {
    const size_t next = (rank + 1) % kRanks;
    const size_t before = (rank + kRanks - 1) % kRanks;
    SoftDriver& driver = *drivers_[rank];
    Stream stream = driver.NewStream();
    const DeviceAddress remote = driver.Import(*drivers_[next], to_[next]);
    for (uint32_t i = 1; i <= kMessages; ++i) {
      driver.Kernel(stream, [this, &driver, rank, i] {
        const std::vector<uint8_t> content(kBytes, Value(rank, i));
        driver.Write(from_[rank], content.data(), kBytes);
      });
      driver.WriteValue(stream, ready_[rank], i);
      driver.WaitValue(stream, ready_[next], i);
      driver.Copy(stream, remote, from_[rank], kBytes);
      driver.WriteValue(stream, done_[next], i);
      driver.WaitValue(stream, done_[rank], i);
      driver.Kernel(stream, [this, &driver, rank, before, i] {
        std::vector<uint8_t> content(kBytes);
        driver.Read(to_[rank], content.data(), kBytes);
        if (content == std::vector<uint8_t>(kBytes, Value(before, i))) ++right_;
      });
    }
    EXPECT_TRUE(driver.Synchronize(stream, kEver));
  }

  SoftMachine machine_;
  std::vector<SoftDriver*> drivers_;
  std::vector<DeviceAddress> from_;
  std::vector<DeviceAddress> to_;
  std::vector<Flag> ready_;
  std::vector<Flag> done_;
  std::atomic<uint32_t> right_ = 0;
};

TEST(SoftMachine, CarriesARingOfMessages) {
  Ring(0).Run();
  Ring(1).Run();
}

}  // namespace
}  // namespace nccltune::sendrecv
