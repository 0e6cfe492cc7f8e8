#include "trireme/config/unread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/test_text.h"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> unread(const Node& root) {
  const CaughtLog log;
  warn_unread(root);
  return log.lines();
}

TEST(Unread, NamesTheNearestKeyThatWasAskedFor) {
  const Node root = read_text("Global:\n  epoch: 3\n  zzz: 1\nGlobl: {a: 1}\n");
  const Node global = root.section("Global");
  global.get("epochs", 1);
  global.get("device", std::string());
  EXPECT_THAT(unread(root),
              ElementsAre("warning: test.yaml:2: Global.epoch: unknown key, ignored; did you mean 'epochs'?",
                          "warning: test.yaml:3: Global.zzz: unknown key, ignored",
                          "warning: test.yaml:4: Globl: unknown key, ignored; did you mean 'Global'?"));
}

TEST(Unread, LeavesUnopenedSectionsToOthers) {
  const Node root = read_text("ops:\n  - Crop: {size: 3, sise: 4}\n");
  const auto crop = root.at("ops").items()[0].at("Crop");
  EXPECT_THAT(unread(root), IsEmpty());
  crop.get("size", 0);
  EXPECT_THAT(unread(root),
              ElementsAre("warning: test.yaml:2: ops.0.Crop.sise: unknown key, ignored; did you mean 'size'?"));
}

TEST(Unread, LeavesSectionsThatWereHandedOn) {
  const Node loss = read_text("weight: 1\nepsilon: 0.1\nepsilom: 2\n");
  loss.get("weight", 1.0);
  loss.hand_on();
  EXPECT_THAT(unread(loss), IsEmpty());
  loss.get("epsilon", 0.0);
  EXPECT_THAT(unread(loss),
              ElementsAre("warning: test.yaml:3: epsilom: unknown key, ignored; did you mean 'epsilon'?"));
}

TEST(Unread, EntriesAreAllKnown) {
  const Node root = read_text("a: {x: 1, y: 2}\n");
  root.section("a").entries();
  EXPECT_THAT(unread(root), IsEmpty());
}

TEST(Unread, WarnsOfEachKeyOnce) {
  const Node root = read_text("Global:\n  epoch: 3\n  zzz: 1\n");
  root.section("Global").get("epochs", 1);
  EXPECT_THAT(unread(root), SizeIs(2));
  EXPECT_THAT(unread(root), IsEmpty());
}

}  // namespace
}  // namespace trireme::config
