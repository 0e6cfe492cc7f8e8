#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/document.h"
#include "trireme/config/test_text.h"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kText =
    "Global:\n"
    "  epochs: 120\n"
    "  checkpoints: null\n"
    "ops:\n"
    "  - Decode: {}\n"
    "  - Crop:\n"
    "      size: 224\n";

Node with(const std::string& option) {
  return parse_document(kText, "test.yaml", {option});
}

std::string refused_option(const std::string& option) {
  return refusal([&] { with(option); });
}

TEST(Override, RefusesWhatIsNoAssignment) {
  EXPECT_EQ(refused_option("Global.epochs"), "-o Global.epochs: expected KEY=VALUE, for example -o Global.epochs=120");
  EXPECT_THAT(refused_option("=3"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(refused_option(" =3"), HasSubstr("0 parts"));
  EXPECT_THAT(refused_option("Global..epochs=3"), HasSubstr("empty part"));
  EXPECT_THAT(refused_option("Global.=3"), HasSubstr("empty part"));
  EXPECT_EQ(refused_option("Global.epochs==3"), "-o Global.epochs==3: one '=' between key and value is enough");
}

TEST(Override, RefusesKeysThatAFileCannotHave) {
  EXPECT_THAT(refused_option(std::string(300, 'k') + "=1"), HasSubstr("at most 200 bytes"));
  EXPECT_THAT(refused_option("a\x01=1"), HasSubstr("printable"));
  EXPECT_THAT(refused_option("base=x.yaml"), HasSubstr("cannot be changed by an option"));
}

TEST(Override, RefusesToGoThroughAValue) {
  EXPECT_EQ(refused_option("Global.epochs.x=3"),
            "-o Global.epochs.x=3: Global.epochs is '120' (test.yaml:2), not a section, so it cannot have a key 'x'");
}

TEST(Override, RefusesAnIndexThatIsNone) {
  EXPECT_EQ(refused_option("ops.2.Crop=3"),
            "-o ops.2.Crop=3: ops (test.yaml:4) is a list of 2; '2' is not one of its indices");
  EXPECT_THAT(refused_option("ops.-1=3"), HasSubstr("'-1' is not one of its indices"));
  EXPECT_THAT(refused_option("ops.Crop.size=3"), HasSubstr("'Crop' is not one of its indices"));
}

TEST(Override, NamesTheOptionWhoseValueIsBad) {
  EXPECT_THAT(refused_option("Global.epochs=[1"), StartsWith("-o Global.epochs=[1: not valid YAML"));
  EXPECT_EQ(refusal([] { with("Global.epochs=many").section("Global").need<int>("epochs"); }),
            "-o Global.epochs=many: Global.epochs: expected a whole number, got 'many'");
  EXPECT_THAT(refused_option("Global.epochs=" + std::string(1000, '[')), HasSubstr("nested more than 20 deep"));
}

TEST(Override, ReplacesValuesByIndexAndKey) {
  const CaughtLog log;
  EXPECT_EQ(with("Global.epochs=3").section("Global").need<int>("epochs"), 3);
  EXPECT_EQ(with("ops.1.Crop.size=160").at("ops").items()[1].section("Crop").need<int>("size"), 160);
  EXPECT_EQ(with("Global.checkpoints=a=b").section("Global").need<std::string>("checkpoints"), "a=b");
  EXPECT_EQ(with("Global.epochs=").section("Global").get("epochs", 7), 7);
  EXPECT_EQ(with("Global.epochs=None").section("Global").get("epochs", 7), 7);
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST(Override, TakesTheTypeFromYaml) {
  const CaughtLog log;
  EXPECT_THAT(with("x=[1, 5]").need<std::vector<int>>("x"), ElementsAre(1, 5));
  EXPECT_TRUE(with("x=True").need<bool>("x"));
  EXPECT_FALSE(with("x='True'").at("x").is_bool());
  EXPECT_EQ(with("x=1e-4").need<double>("x"), 1e-4);
  EXPECT_EQ(with("x={'a': 1}").section("x").need<int>("a"), 1);
}

TEST(Override, AddsKeysWithANotice) {
  const CaughtLog log;
  const Node root = with("EMA.decay.deep=0.9");
  EXPECT_EQ(root.section("EMA").section("decay").need<double>("deep"), 0.9);
  EXPECT_THAT(log.lines(), ElementsAre("info: -o EMA.decay.deep=0.9: the configuration has no EMA; added"));
}

TEST(Override, MakesASectionOfNull) {
  const CaughtLog log;
  EXPECT_EQ(with("Global.checkpoints.a=1").section("Global").section("checkpoints").need<int>("a"), 1);
}

}  // namespace
}  // namespace trireme::config
