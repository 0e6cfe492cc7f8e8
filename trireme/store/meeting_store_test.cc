#include "trireme/store/meeting_store.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/store/memory_store.h"

namespace trireme::store {
namespace {

using namespace std::chrono_literals;

class MeetingStoreTest : public ::testing::Test {
 protected:
  MeetingStore meet(int me) {
    return {store_, {.operation = "new_group", .prefix = "group/", .me = me, .ranks = {0, 2, 3}, .attempt = 1}};
  }
  std::string refusal_of_get(MeetingStore& meeting, Deadline deadline) {
    return message_of<PeerError>([&] { meeting.get("key", deadline); });
  }

  std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
  EndedRanks ended_{store_, 1};
};

TEST_F(MeetingStoreTest, AnEndedRankEndsTheWait) {
  MeetingStore meeting = meet(0);
  ended_.note_end(3, "");
  EXPECT_EQ(refusal_of_get(meeting, Deadline::in(10min)),
            "rank 0: new_group waits for rank 3, which has ended with exit code 0; all ranks must make the same calls");
  EXPECT_EQ(meeting.unfinished(), (std::vector<int>{0, 2, 3}));
}

TEST_F(MeetingStoreTest, ARankMayEndWhenItHasFinished) {
  MeetingStore meeting = meet(0);
  meet(3).finish();
  ended_.note_end(3, "");
  EXPECT_EQ(meeting.unfinished(), (std::vector<int>{0, 2}));
  const std::string message = refusal_of_get(meeting, Deadline::in(300ms));
  EXPECT_NE(message.find("rank 0: new_group has waited 0.3 s for rank 2; do all"), std::string::npos) << message;
}

TEST_F(MeetingStoreTest, OthersMayEnd) {
  MeetingStore meeting = meet(0);
  ended_.note_end(1, "");                 // not one of those who meet
  EndedRanks(store_, 0).note_end(2, "");  // in the attempt before
  const std::string message = refusal_of_get(meeting, Deadline::in(300ms));
  EXPECT_NE(message.find("for ranks 2, 3;"), std::string::npos) << message;
}

TEST_F(MeetingStoreTest, AValueThatIsThereCounts) {
  MeetingStore meeting = meet(0);
  ended_.note_end(3, "");
  store_->set("key", "value");
  EXPECT_EQ(meeting.get("key", Deadline::in(10s)), "value");
}

TEST_F(MeetingStoreTest, WaitsAreToldToTheLaunchers) {
  EXPECT_EQ(ended_.wait_of(0), std::nullopt);
  const EndedRanks::Wait wait{.rank = 0, .operation = "all_reduce", .ranks = {2, 13}};
  ended_.note_wait(wait);
  ended_.note_wait({.rank = 2, .operation = "barrier"});
  EXPECT_EQ(ended_.wait_of(0), wait);
  EXPECT_EQ(ended_.waits(), (std::vector<EndedRanks::Wait>{wait, {.rank = 2, .operation = "barrier"}}));
}

TEST_F(MeetingStoreTest, TheEndsOfOneAttempt) {
  ended_.note_end(12, "how");
  EXPECT_EQ(ended_.list(), (std::map<int, std::string>{{12, "how"}}));
  EXPECT_TRUE(EndedRanks(store_, 11).list().empty());
}

}  // namespace
}  // namespace trireme::store
