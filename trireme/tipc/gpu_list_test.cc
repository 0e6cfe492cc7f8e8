#include "trireme/tipc/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using testing::HasSubstr;

std::string launch(std::string_view text) {
  return join(parse_placement(text, "gpu_list").launch_options(), " ");
}

TEST(GpuList, OneMachine) {
  EXPECT_EQ(launch("-1"), "-n 1");
  EXPECT_EQ(launch("cpu"), "-n 1");
  EXPECT_EQ(launch("cpu:2"), "-n 2");
  EXPECT_EQ(launch("0"), "--gpus 0");
  EXPECT_EQ(launch("0,1"), "--gpus 0,1");
  EXPECT_EQ(parse_placement("2,5", "").devices(), 2);
}

// What the original takes for addresses, because it goes by the length of the text.
TEST(GpuList, NineGpus) {
  const Placement nine = parse_placement("0,1,2,3,4,5,6,7,8", "gpu_list");
  EXPECT_TRUE(nine.hosts.empty());
  EXPECT_EQ(nine.processes, 9);
}

TEST(GpuList, ManyMachines) {
  EXPECT_EQ(launch("192.168.0.1,192.168.0.2;0,1"), "--ips 192.168.0.1,192.168.0.2 --gpus 0,1");
  EXPECT_EQ(launch("1.1.1.1,1.1.1.2;0,1"), "--ips 1.1.1.1,1.1.1.2 --gpus 0,1");  // 15 characters: dropped there
  EXPECT_EQ(launch("10.0.0.1,10.0.0.2;0"), "--ips 10.0.0.1,10.0.0.2 --gpus 0");  // one GPU each: not launched there
  EXPECT_EQ(launch("a,b,c;cpu:2"), "--ips a,b,c -n 2");
  EXPECT_EQ(launch("fd00::1,fd00::2;cpu:1"), "--ips fd00::1,fd00::2 -n 1");
  const Placement placement = parse_placement("a,b;0,1", "");
  EXPECT_EQ(placement.nodes(), 2);
  EXPECT_EQ(placement.devices(), 4);
  EXPECT_EQ(placement.device_text(), "0,1");
}

TEST(GpuList, NamesOfFolders) {
  EXPECT_EQ(parse_placement("cpu:2", "").device_text(), "cpu2");
  EXPECT_EQ(parse_placement("-1", "").device_text(), "cpu1");
}

TEST(GpuList, BadOnesAreNamed) {
  const std::vector<std::pair<const char*, const char*>> bad = {{"", "no devices"},
                                                                {"0,,1", "not a GPU number"},
                                                                {"0,", "not a GPU number"},
                                                                {"0 1", "'0 1'"},
                                                                {"-2", "'-2'"},
                                                                {"0,0", "twice"},
                                                                {"cpu:0", "processes"},
                                                                {"cpu:", "processes"},
                                                                {"cpu:x", "processes"},
                                                                {"a,b;", "no devices"},
                                                                {";0", "no machines"},
                                                                {"a,;0", "not the address"},
                                                                {"0;1", "'0' is not the address"},
                                                                {"300.1.1.1,1.1.1.1;0", "not the address"},
                                                                {"a,a;0", "twice"},
                                                                {"192.168.0.1", "192.168.0.1"},
                                                                {"--ssh,b;0", "address"},
                                                                {"a;1;2", "not a GPU number"},
                                                                {"a b;0", "address"},
                                                                {"99999999999", "GPU number"}};
  for (const auto& [text, words] : bad) {
    try {
      parse_placement(text, "x.txt:4: gpu_list");
      ADD_FAILURE() << text << " was taken";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("x.txt:4: gpu_list"));
      EXPECT_THAT(error.what(), HasSubstr(words)) << text;
    }
  }
}

TEST(GpuList, WhatASpeedUpIsCountedFrom) {
  EXPECT_EQ(join(single(parse_placement("a,b;2,3", "")).launch_options(), " "), "--gpus 2");
  EXPECT_EQ(join(single(parse_placement("cpu:4", "")).launch_options(), " "), "-n 1");
}

}  // namespace
}  // namespace trireme::tipc
