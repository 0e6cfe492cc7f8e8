#include "trireme/launch/options/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "trireme/core/error.h"
#include "trireme/core/file.h"

namespace trireme::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string shown(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) text += fmt::format("{} {};", host.host, host.slots);
  return text;
}

TEST(Hostfile, LinesCommentsAndBlanks) {
  const char* text =
      "# the cluster\n\n  a slots=4\nb.example.org   slots=2 max_slots=8  # the small one\r\nc\nd:3\t\n"
      "2001:db8::7 slots=2\n[fe80::1%eth0]:5\n   \n10.0.0.9 max-slots=3";
  EXPECT_EQ(shown(parse_hostfile(text, "h")), "a 4;b.example.org 2;c 0;d 3;2001:db8::7 2;fe80::1%eth0 5;10.0.0.9 0;");
}

TEST(Hostfile, ErrorsNameFileAndLine) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"a\nb slots=0\n", {"hosts:2", "\"0\"", "from 1 to 65536"}},
      {"a slots=x\n", {"hosts:1", "\"x\""}},
      {"a slots=\n", {"hosts:1", "\"\""}},
      {"a slots\n", {"hosts:1", "\"slots\" is not understood", "host slots=N"}},
      {"a 4\n", {"hosts:1", "\"4\" is not understood"}},
      {"a cpus=4\n", {"\"cpus=4\" is not understood"}},
      {"a slots = 4\n", {"not understood"}},
      {"a slots=4 max_slots=2\n", {"slots=4 is more than max_slots=2"}},
      {"a\n#\na slots=2\n", {"hosts:3", "host a is in line 1 already"}},
      {"a:x\n", {"hosts:1", "\"x\""}},
      {"a/b\n", {"hosts:1", "\"a/b\" is not a host name"}},
      {"1.2.3\n", {"not an IPv4 address"}},
      {"1::2::3\n", {"not an IPv6 address"}},
      {":4\n", {"a host is empty"}},
      {"", {"hosts: names no host"}},
      {"# nothing\n\n", {"names no host", "host slots=N"}}};
  for (const auto& [text, words] : cases)
    for (const std::string& word : words)
      EXPECT_THAT([&] { parse_hostfile(text, "hosts"); }, ThrowsMessage<UsageError>(HasSubstr(word))) << text;
}

TEST(Hostfile, FilesAreReadAndNamed) {
  const TempDir folder;
  const std::string path = folder.path() / "hosts";
  std::ofstream(path) << "a slots=1\nb slots=z\n";
  EXPECT_THAT([&] { read_hostfile(path); }, ThrowsMessage<UsageError>(HasSubstr(path + ":2")));
  EXPECT_THAT([&] { read_hostfile(path + "x"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr(path + "x"), HasSubstr("cannot be read"))));
  EXPECT_THAT([&] { read_hostfile(folder.path()); }, ThrowsMessage<UsageError>(HasSubstr("cannot be read")));
}

TEST(HostSlots, HorovodsList) {
  EXPECT_EQ(shown(parse_host_slots("a:2,b:4", "-H")), "a 2;b 4;");
  EXPECT_EQ(shown(parse_host_slots("a, 10.0.0.1:1 ,[::1]:3,[::2],2001:db8::7", "-H")),
            "a 0;10.0.0.1 1;::1 3;::2 0;2001:db8::7 0;");
}

TEST(HostSlots, Errors) {
  const std::pair<const char*, const char*> cases[] = {{"", "list of hosts is empty"}, {"a:2,", "a host is empty"},
                                                       {"a:0", "from 1 to 65536"},     {"a:", "from 1 to 65536"},
                                                       {"a:2,A:2", "given twice"},     {"a:70000", "\"70000\""}};
  for (const auto& [text, word] : cases)
    EXPECT_THAT([&] { parse_host_slots(text, "-H x"); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr("-H x"), HasSubstr(word))))
        << text;
}

TEST(Host, LoopbackIsKnownByAllItsNames) {
  for (const char* name : {"127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "::1", "0:0:0:0:0:0:0:1"})
    EXPECT_TRUE(is_loopback(name)) << name;
  for (const char* name : {"10.0.0.1", "127.example.org", "::2", "localhost2"}) EXPECT_FALSE(is_loopback(name)) << name;
}

TEST(Host, OneSpellingForOneAddress) {
  EXPECT_EQ(canonical_host("Node1.Example"), "node1.example");
  EXPECT_EQ(canonical_host("2001:DB8:0:0::7"), "2001:db8::7");
}

TEST(Host, NamesAreChecked) {
  EXPECT_EQ(parse_host(" node_1-a.example ", "x"), "node_1-a.example");
  EXPECT_EQ(parse_host("[::1]", "x"), "::1");
  for (const char* name : {"", "-a", "a b", "a$b", "256.1.1.1", "1.2.3.4.5", "a:1", "[]"})
    EXPECT_THROW(parse_host(name, "x"), UsageError) << name;
}

}  // namespace
}  // namespace trireme::launch
