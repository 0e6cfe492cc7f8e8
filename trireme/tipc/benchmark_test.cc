#include "trireme/tipc/benchmark.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace trireme::tipc {
namespace {

using testing::HasSubstr;

std::string line(double ips) {
  return "[2026/11/15 13:06:26] trireme INFO: [Train][Epoch 1/1][Iter: 1/4]lr(Cosine): 0.1, CELoss: 7.0, loss: 6.95, "
         "batch_cost: 0.08s, reader_cost: 0.001, ips: " +
         fmt::format("{:.2f}", ips) + " samples/s, eta: 0:00:01\n";
}

std::optional<Throughput> throughput_in(const std::string& log) {
  std::istringstream stream(log);
  return parse_throughput(stream);
}

TEST(Benchmark, TheFirstHalfIsWarmingUp) {
  const auto found =
      throughput_in(line(1) + line(2) + "noise ips: x\n[Eval] ips: 900 samples/s\n" + line(100) + line(200));
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->ips, 150);
  EXPECT_EQ(found->unit, "samples/s");
  EXPECT_EQ(found->loss, "6.95");
  EXPECT_EQ(found->lines, 2u);
  EXPECT_FALSE(throughput_in("nothing\n"));
  EXPECT_FALSE(throughput_in(" ips: \n ips: -1 samples/s\n ips:"));
}

TEST(Benchmark, HundredLinesAtMostAreLeftOut) {
  std::string log;
  for (int i = 0; i < 100; ++i) log += line(1);
  for (int i = 0; i < 300; ++i) log += line(7);
  EXPECT_DOUBLE_EQ(throughput_in(log)->ips, 7);
  EXPECT_EQ(throughput_in(log)->lines, 300u);
}

TEST(Benchmark, SpeedUpAndEfficiency) {
  const std::vector<Measurement> all = {{{"8", "fp32", 1, 1}, {100, "samples/s", "", 1}},
                                        {{"8", "fp32", 1, 8}, {88, "samples/s", "", 1}},
                                        {{"8", "bf16", 2, 16}, {10, "samples/s", "", 1}}};
  const std::string table = speedup_table(all);
  EXPECT_THAT(table, HasSubstr("| 8 CPU | 1 | 8 | fp32 | 704.00 | 1 | 7.04 | 88 % |"));
  const std::string backwards = speedup_table({all[1], all[0]});
  EXPECT_THAT(backwards, HasSubstr("| 1.00 | 100 % |\n| 8 CPU | 1 | 8 | fp32 | 704.00 | 1 | 7.04 |")) << "fewest first";
  EXPECT_THAT(table, HasSubstr("| 16 CPU | 2 | 8 | bf16 | 160.00 | 16 | 1.00 | 100 % |"));
}

TEST(Benchmark, AGpuIsNotComparedWithAProcessOnTheCpu) {
  const std::string table = speedup_table({{{"8", "fp32", 1, 1, "CPU"}, {10, "samples/s", "", 1}},
                                           {{"8", "fp32", 1, 1, "GPU"}, {1000, "samples/s", "", 1}},
                                           {{"8", "fp32", 1, 2, "GPU"}, {900, "samples/s", "", 1}}});
  EXPECT_THAT(table, HasSubstr("| 1 CPU | 1 | 8 | fp32 | 10.00 | 1 | 1.00 | 100 % |"));
  EXPECT_THAT(table, HasSubstr("| 1 GPU | 1 | 8 | fp32 | 1000.00 | 1 | 1.00 | 100 % |"));
  EXPECT_THAT(table, HasSubstr("| 2 GPU | 1 | 8 | fp32 | 1800.00 | 1 | 1.80 | 90 % |"));
}

TEST(Benchmark, Json) {
  const std::string json = throughput_json("tiny", {{"8", "fp32", 2, 4, "GPU"}, {25, "samples/s", "6.9", 1}, 3});
  for (const char* part : {"\"model_name\": \"tiny_bs8_fp32_DP\"", "\"batch_size\": 8", "\"fp_item\": \"fp32\"",
                           "\"run_mode\": \"DP\"", "\"ips\": 100.0", "\"speed_unit\": \"samples/s\"",
                           "\"device_num\": \"N2C2\"", "\"device\": \"GPU\"", "\"convergence_value\": \"6.9\""})
    EXPECT_THAT(json, HasSubstr(part));
}

}  // namespace
}  // namespace trireme::tipc
