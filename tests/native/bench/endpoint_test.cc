// SPDX-License-Identifier: Apache-2.0
#include "bench/endpoint.h"

#include <gtest/gtest.h>

#include <string>

namespace nccltune::bench {
namespace {

TEST(Endpoint, NamesAndAddressesAreRead) {
  EXPECT_EQ(ParseEndpoint("node0:1"), (Endpoint{"node0", 1}));
  EXPECT_EQ(ParseEndpoint("10.0.0.1:65535"), (Endpoint{"10.0.0.1", 65535}));
  EXPECT_EQ(ParseEndpoint("[fe80::1%eth0]:29500"), (Endpoint{"fe80::1%eth0", 29500}));
}

TEST(Endpoint, OthersAreNone) {
  for (const char* text : {"", ":", "node0", "node0:", ":1", "node0:0", "node0:65536", "node0:1a",
                           "node0:-1", "::1:29500", "[]:1", "a b:1", "[::1:1", "no]de:1"}) {
    EXPECT_FALSE(ParseEndpoint(text)) << text;
  }
}

TEST(Endpoint, WritingIsTheInverseOfParsing) {
  for (const char* text : {"node0:1", "10.0.0.1:2", "[::1]:3"}) {
    EXPECT_EQ(ToString(*ParseEndpoint(text)), text);
  }
}

TEST(Endpoint, AddressesAreListenedOnExactly) {
  EXPECT_TRUE(IsExact({"127.0.0.1", 1}));
  EXPECT_TRUE(IsExact({"::1", 1}));
  EXPECT_TRUE(IsExact({"fe80::1%lo", 1}));
  EXPECT_TRUE(IsExact({"localhost", 1}));
  EXPECT_FALSE(IsExact({"node0", 1}));
}

TEST(Endpoint, AnUnknownHostHasNoAddress) {
  std::string error;
  EXPECT_FALSE(Resolve({"127.0.0.1", 1}, &error).empty());
  EXPECT_TRUE(Resolve({"no.such.host.invalid", 1}, &error).empty());
  EXPECT_FALSE(error.empty());
}

}  // namespace
}  // namespace nccltune::bench
