// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/hooks/search_path.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "common/file.h"

namespace nccltune::sendrecv {
namespace {

int AddPath(dl_phdr_info* object, size_t /*size*/, void* paths) {
  if (object->dlpi_name != nullptr && *object->dlpi_name != '\0') {
    static_cast<std::vector<std::string>*>(paths)->emplace_back(object->dlpi_name);
  }
  return 0;
}

// Returns the folders where one object searches for its libraries. If `path` is null, the object is
// the program.
std::vector<std::string> FoldersOf(const char* path) {
  std::vector<std::string> folders;
  void* const handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return folders;
  Dl_serinfo size{};
  if (dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) == 0 && size.dls_size >= sizeof(Dl_serinfo)) {
    std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* const info = new (memory.data()) Dl_serinfo(size);
    if (dlinfo(handle, RTLD_DI_SERINFOSIZE, info) == 0 &&
        dlinfo(handle, RTLD_DI_SERINFO, info) == 0) {
      for (unsigned i = 0; i < info->dls_cnt; ++i) {
        folders.emplace_back(info->dls_serpath[i].dls_name);
      }
    }
  }
  dlclose(handle);
  return folders;
}

// Returns whether the folder is one of the loader's built-in folders, which every object searches
// last. The dlinfo of glibc does not mark these folders (checked with 2.41), so their paths are
// compared.
bool IsSystemFolder(std::string_view folder) {
  return folder.starts_with("/lib") || folder.starts_with("/usr/lib");
}

class Finder {
 public:
  Finder(std::string_view name, const std::string& except) : name_(name) {
    struct stat file{};
    if (stat(except.c_str(), &file) == 0) seen_.push_back({file.st_dev, file.st_ino});
  }

  void SearchFolder(const std::string& folder) {
    if (folder.empty() || std::find(folders_.begin(), folders_.end(), folder) != folders_.end()) {
      return;
    }
    folders_.push_back(folder);
    found_.folders += (found_.folders.empty() ? "" : ":") + folder;
    Add(folder + "/" + name_);
  }

  void Add(const std::string& path) {
    struct stat file{};
    if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return;
    const Identity identity = {file.st_dev, file.st_ino};
    for (const Identity& seen : seen_) {
      if (seen.device == identity.device && seen.number == identity.number) return;
    }
    seen_.push_back(identity);
    found_.files.push_back(path);
  }

  SearchPath found() const { return found_; }

 private:
  struct Identity {
    dev_t device;
    ino_t number;
  };

  std::string name_;
  std::vector<Identity> seen_;
  std::vector<std::string> folders_;
  SearchPath found_;
};

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

std::vector<std::string> LoadedPaths() {
  std::vector<std::string> paths;
  dl_iterate_phdr(&AddPath, &paths);
  return paths;
}

SearchPath FindOnSearchPath(std::string_view name, const std::string& except) {
  std::vector<std::string> folders = FoldersOf(nullptr);
  for (const std::string& path : LoadedPaths()) {
    const std::vector<std::string> more = FoldersOf(path.c_str());
    folders.insert(folders.end(), more.begin(), more.end());
  }
  Finder finder(name, except);
  for (const std::string& folder : folders) {
    if (!IsSystemFolder(folder)) finder.SearchFolder(folder);
  }
  for (const std::string& path : FindInLoaderCache("/etc/ld.so.cache", name)) finder.Add(path);
  for (const std::string& folder : folders) {
    if (IsSystemFolder(folder)) finder.SearchFolder(folder);
  }
  return finder.found();
}

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
