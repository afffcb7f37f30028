// SPDX-License-Identifier: Apache-2.0
#include "bench/ending.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <thread>

namespace nccltune::bench {
namespace {

std::atomic<int> g_signal = 0;

struct SignalName {
  int number;
  const char* name;
};
constexpr std::array<SignalName, 3> kEnding = {
    {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}}};

sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const SignalName& one : kEnding) {
    struct sigaction before{};
    sigaction(one.number, nullptr, &before);
    if (before.sa_handler != SIG_IGN || one.number == SIGTERM) sigaddset(&signals, one.number);
  }
  return signals;
}

void WaitForSignals(sigset_t signals, int event) {
  for (;;) {
    int number = 0;
    if (sigwait(&signals, &number) != 0) continue;
    int none = 0;
    if (!g_signal.compare_exchange_strong(none, number)) continue;
    EndByForce(kSignalled + number, kGrace);
    const uint64_t one = 1;
    while (write(event, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace

void EndByForce(int status, std::chrono::milliseconds after) {
  std::thread([status, after] {
    std::this_thread::sleep_for(after);
    _exit(status);
  }).detach();
}

Signals::Signals() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  std::thread(WaitForSignals, signals, event_).detach();
}

int Signals::number() const { return g_signal; }

EarlyEnd Signals::OnSignal() const {
  return {event_, [this] { return "ended by " + Name(number()); },
          [this] { return kSignalled + number(); }, [](int status) { EndByForce(status, kGrace); }};
}

std::string Signals::Name(int number) {
  for (const SignalName& one : kEnding) {
    if (one.number == number) return one.name;
  }
  return "signal " + std::to_string(number);
}

bool EndWithParent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  return getppid() == parent;
}

}  // namespace nccltune::bench
