// SPDX-License-Identifier: Apache-2.0
#include "net/kernel_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "common/descriptor.h"
#include "common/retry.h"
#include "common/text.h"
#include "net/interfaces.h"
#include "net/zero_copy.h"

namespace nccltune::net {
namespace {

// Reads the last of the three numbers of tcp_rmem or tcp_wmem.
std::optional<uint64_t> ReadLastNumber(const std::string& path) {
  const std::optional<std::string> text = ReadKernelFile(path);
  if (!text) return std::nullopt;
  const std::string_view line = Trimmed(*text);
  const size_t blank = line.find_last_of(" \t");
  return ParseUnsigned(blank == std::string_view::npos ? line : line.substr(blank + 1));
}

std::string Counted(int number, std::string_view noun) {
  return std::to_string(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string LimitText(std::string_view name, std::optional<uint64_t> bytes) {
  return ", " + std::string(name) + " " + (bytes ? BytesText(*bytes) : std::string("unknown"));
}

std::string ZeroCopyText(ZeroCopyMode mode, const KernelFacts& facts) {
  if (mode == ZeroCopyMode::kOff) return "off";
  if (!facts.zero_copy) return "not in this kernel";
  return (mode == ZeroCopyMode::kAuto ? "auto" : "always") +
         LimitText("optmem_max", facts.optmem_max);
}

std::string NicText(const Nic& nic) {
  std::string text =
      nic.name + " " + AddressText(nic.address) + " " + std::to_string(nic.speed_mbps) + " Mb/s";
  if (nic.mtu > 0) text += " MTU " + std::to_string(nic.mtu);
  if (!nic.driver.empty()) text += " " + nic.driver;
  return text;
}

}  // namespace

KernelFacts ReadKernelFacts(const KernelRoots& roots) {
  const std::string ipv4 = roots.proc + "/sys/net/ipv4/";
  KernelFacts facts;
  facts.optmem_max = ReadKernelNumber(roots.proc + "/sys/net/core/optmem_max");
  facts.tcp_rmem_max = ReadLastNumber(ipv4 + "tcp_rmem");
  facts.tcp_wmem_max = ReadLastNumber(ipv4 + "tcp_wmem");
  facts.congestion_control = ReadKernelFile(ipv4 + "tcp_congestion_control").value_or("");
  facts.zero_copy = KernelHasZeroCopy();
  facts.cpus = UsableCpus(roots);
  return facts;
}

std::string BytesText(uint64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits = {"", " KiB", " MiB", " GiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + std::string(kUnits[unit]);
}

std::string InitLine(std::span<const Nic> nics, const KernelFacts& facts,
                     const NetSettings& settings, int flows, int threads) {
  std::string line = Counted(flows, "flow") + ", " + Counted(threads, "thread") + " on " +
                     Counted(facts.cpus, "CPU");
  if (settings.ports.first != 0) {
    line += ", ports " + std::to_string(settings.ports.first) + "-" +
            std::to_string(settings.ports.last);
  }
  line += "; congestion control " +
          (facts.congestion_control.empty() ? "unknown" : facts.congestion_control);
  line += LimitText("tcp_rmem", facts.tcp_rmem_max);
  line += LimitText("tcp_wmem", facts.tcp_wmem_max);
  line += "; zero copy " + ZeroCopyText(settings.zero_copy, facts);
  line += "; " + Counted(static_cast<int>(nics.size()), "NIC");
  if (nics.empty()) return line;
  std::vector<std::string> texts;
  for (const Nic& nic : nics) texts.push_back(NicText(nic));
  return WithAsManyAsFit(line + ": ", texts, ", ", kMostInitLine);
}

namespace {

constexpr size_t kLargest = 64U << 10U;

}  // namespace

std::optional<std::string> ReadKernelFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return std::nullopt;
  std::string content(kLargest, '\0');
  size_t done = 0;
  while (done < kLargest) {
    const ssize_t got =
        Retry([&] { return read(file.fd(), content.data() + done, kLargest - done); });
    // Reading may fail after a successful open: the speed of an interface without a link is an
    // example.
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  while (!content.empty() && content.back() == '\n') content.pop_back();
  return content;
}

std::optional<uint64_t> ReadKernelNumber(const std::string& path) {
  const std::optional<std::string> text = ReadKernelFile(path);
  return text ? ParseUnsigned(Trimmed(*text)) : std::nullopt;
}

namespace {

constexpr int kFewestThreads = 2;
constexpr int kMostThreads = 24;
constexpr int kFewestBulkFlows = 2;
constexpr int kMostBulkFlows = 8;

// NCCL's progress thread and the application's main thread often poll, and each takes one CPU. With
// at most kOneChannelPairCpus CPUs, a NIC is one device. With at most kTwoThreadCpus CPUs, the pool
// has two threads. More devices (which bring more channels) or more threads would only compete for
// CPUs (benchmarks/results/net-cores.md).
constexpr int kOneChannelPairCpus = 5;
constexpr int kTwoThreadCpus = 3;
constexpr int kFewCpuThreads = 4;

// NCCL makes two channels for each device, and eight channels are enough for TCP.
constexpr size_t kDevices = 4;

int ProcessCpus() {
  // Read the kernel's files only once: the function is called for each connection.
  static const int cpus = UsableCpus();
  return cpus;
}

}  // namespace

int PoolThreads(const NetSettings& settings, int cpus) {
  if (settings.threads != 0) return settings.threads;
  if (cpus <= kTwoThreadCpus) return kFewestThreads;
  return std::clamp(3 * cpus / 4, kFewCpuThreads, kMostThreads);
}

int PoolThreads(const NetSettings& settings) { return PoolThreads(settings, ProcessCpus()); }

int FlowsOf(const NetSettings& settings, int threads) {
  if (settings.flows != 0) return settings.flows;
  return std::clamp(threads / 2, kFewestBulkFlows, kMostBulkFlows);
}

int DevicesOfNic(size_t nics, int cpus) {
  if (nics == 0 || cpus <= kOneChannelPairCpus) return 1;
  return std::max(static_cast<int>(kDevices / nics), 1);
}

int DevicesOfNic(size_t nics) { return DevicesOfNic(nics, ProcessCpus()); }

}  // namespace nccltune::net
