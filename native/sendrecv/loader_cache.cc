// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/loader_cache.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/file.h"

namespace nccltune::sendrecv {
namespace {

constexpr size_t kLargest = 64U << 20U;
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";

struct Header {
  char magic[20];
  uint32_t entries;
  uint32_t bytes_of_strings;
  uint32_t unused[5];
};

struct Entry {
  int32_t flags;
  uint32_t name;  // offset from the header
  uint32_t path;
  uint32_t system;
  uint64_t processor;
};

static_assert(sizeof(Header) == 48 && sizeof(Entry) == 24);

std::string_view TextAt(std::string_view content, size_t offset) {
  if (offset >= content.size()) return {};
  const std::string_view rest = content.substr(offset);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

}  // namespace

std::vector<std::string> FindInLoaderCache(const std::string& cache, std::string_view name) {
  std::vector<std::string> paths;
  std::string all;
  std::string error;
  if (!ReadFile(cache, kLargest, &all, &error)) return paths;
  const size_t start = all.find(kMagic);
  if (start == std::string::npos) return paths;
  const std::string_view content = std::string_view(all).substr(start);
  Header header{};
  if (content.size() < sizeof header) return paths;
  std::memcpy(&header, content.data(), sizeof header);
  if (header.entries > (content.size() - sizeof header) / sizeof(Entry)) return paths;
  for (size_t i = 0; i < header.entries; ++i) {
    Entry entry{};
    std::memcpy(&entry, content.data() + sizeof header + i * sizeof entry, sizeof entry);
    if (TextAt(content, entry.name) != name) continue;
    const std::string_view path = TextAt(content, entry.path);
    if (!path.empty()) paths.emplace_back(path);
  }
  return paths;
}

}  // namespace nccltune::sendrecv
