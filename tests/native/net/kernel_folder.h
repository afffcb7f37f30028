// SPDX-License-Identifier: Apache-2.0
// A folder that a test fills as the kernel would fill /proc or /sys.
#pragma once

#include "net/interfaces.h"
#include "testing.h"

namespace nccltune::net {

class KernelFolder {
 public:
  KernelFolder() {
    std::string name = ::testing::TempDir() + "nccltune-kernel-XXXXXX";
    const char* const made = mkdtemp(name.data());
    EXPECT_NE(made, nullptr);
    // Resolved, because the temporary directory may be a link.
    root_ = std::filesystem::canonical(name);
  }
  ~KernelFolder() { std::filesystem::remove_all(root_); }
  KernelFolder(const KernelFolder&) = delete;
  KernelFolder& operator=(const KernelFolder&) = delete;

  std::string root() const { return root_; }
  std::string Path(const std::string& path) const { return root_ / path; }

  void Write(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content << '\n';
  }
  void MakeFolder(const std::string& path) const {
    std::filesystem::create_directories(root_ / path);
  }
  // `to` is relative to the root.
  void Link(const std::string& from, const std::string& to) const {
    std::filesystem::create_directories((root_ / from).parent_path());
    std::filesystem::create_symlink(root_ / to, root_ / from);
  }

 private:
  std::filesystem::path root_;
};

inline Address AddressOf(const std::string& text, unsigned scope = 0) {
  Address address;
  if (text.find(':') == std::string::npos) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &v4.sin_addr), 1) << text;
    std::memcpy(&address.storage, &v4, sizeof(v4));
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_scope_id = scope;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1) << text;
    std::memcpy(&address.storage, &v6, sizeof(v6));
  }
  return address;
}

inline InterfaceAddress InterfaceOf(const std::string& name, const std::string& address,
                                    unsigned scope = 0) {
  return {.name = name, .address = AddressOf(address, scope)};
}

}  // namespace nccltune::net
