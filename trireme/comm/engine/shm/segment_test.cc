#include "trireme/comm/engine/shm/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "trireme/comm/engine/shm/rendezvous.h"
#include "trireme/comm/engine/shm/test_ranks.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/store/memory_store.h"

namespace trireme::comm::shm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const Shape kShape{.ranks = 2, .piece_bytes = 4096};

mode_t mode_of(int fd) {
  struct stat info {};
  ::fstat(fd, &info);
  return info.st_mode & 0777;
}

TEST(SegmentFile, IsPrivateAndWhole) {
  for (const SegmentFile& file : {SegmentFile::anonymous(10000), SegmentFile::named(10000)}) {
    EXPECT_EQ(mode_of(file.fd()), 0600u) << file.path();
    struct stat info {};
    ::fstat(file.fd(), &info);
    EXPECT_EQ(info.st_size, 10000) << file.path();
    EXPECT_GE(info.st_blocks * 512, 10000) << "its pages are there: " << file.path();
  }
}

TEST(SegmentFile, ANameGoesWithTheObject) {
  std::string path;
  {
    const SegmentFile file = SegmentFile::named(4096);
    path = file.path();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SegmentFile, TooLittleSpaceSaysBothNumbers) {
  const std::string message = message_of<SystemError>([] { SegmentFile::named(size_t{1} << 50); });
  EXPECT_THAT(message, HasSubstr("1125899906842624 bytes does not fit in /dev/shm"));
  EXPECT_THAT(message, HasSubstr("--shm-size"));
  EXPECT_TRUE(testing::nothing_left());
}

TEST(Segment, IsSharedByTwoMappings) {
  for (const SegmentFile& file :
       {SegmentFile::anonymous(kShape.total_bytes()), SegmentFile::named(kShape.total_bytes())}) {
    const auto first = Segment::format(file.fd(), kShape);
    const auto second = Segment::attach(open_segment(file.path()).get(), kShape);
    first->in(1, 3)[7] = std::byte{42};
    EXPECT_EQ(second->in(1, 1)[7], std::byte{42});
  }
}

TEST(Segment, AreasDoNotOverlap) {
  const SegmentFile file = SegmentFile::anonymous(kShape.total_bytes());
  const auto segment = Segment::format(file.fd(), kShape);
  EXPECT_GE(segment->in(0, 0), reinterpret_cast<std::byte*>(&segment->control(1) + 1));
  EXPECT_GE(segment->in(0, 1), segment->out(0, 0) + kShape.out_bytes());
  EXPECT_GE(segment->in(1, 0), segment->out(0, 1) + kShape.out_bytes());
  EXPECT_LE(segment->out(1, 1) + kShape.out_bytes(),
            reinterpret_cast<std::byte*>(&segment->header()) + kShape.total_bytes());
}

TEST(Segment, AnotherShapeOrVersionIsRefused) {
  const SegmentFile file = SegmentFile::anonymous(kShape.total_bytes());
  const auto segment = Segment::format(file.fd(), kShape);
  EXPECT_THAT(message_of<PeerError>([&] { Segment::attach(file.fd(), {3, 4096}); }), HasSubstr("this rank expects"));
  segment->header().ranks = 9;
  EXPECT_THAT(message_of<PeerError>([&] { Segment::attach(file.fd(), kShape); }), HasSubstr("for 9 ranks"));
  segment->header().version = 99;
  EXPECT_THAT(message_of<PeerError>([&] { Segment::attach(file.fd(), kShape); }), HasSubstr("version 99"));
}

TEST(Segment, AFileOfAnotherModeIsRefused) {
  const TempDir dir;
  const std::string path = dir.path() / "open";
  write_file_atomically(path, "x");
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  EXPECT_THAT(message_of<PeerError>([&] { open_segment(path); }), HasSubstr("mode 100666"));
  EXPECT_THROW(open_segment(dir.path() / "none"), SystemError);
}

std::shared_ptr<Segment> meet_as(store::MemoryStore& store, int rank, const Shape& shape, const FileKinds& kinds) {
  return meet(store, "g/", {rank, 2}, shape, kinds, Deadline::in(20s));
}

TEST(Rendezvous, BothKindsOfFileLeaveNothingBehind) {
  for (const FileKinds& kinds : {FileKinds{FileKind::anonymous}, FileKinds{FileKind::named}}) {
    store::MemoryStore store;
    std::shared_ptr<Segment> second;
    std::thread other([&] { second = meet_as(store, 1, kShape, kinds); });
    const auto first = meet_as(store, 0, kShape, kinds);
    other.join();
    first->in(0, 0)[0] = std::byte{5};
    EXPECT_EQ(second->in(0, 0)[0], std::byte{5});
    EXPECT_TRUE(testing::nothing_left());
  }
}

TEST(Rendezvous, TheNextKindIsTriedWhenOneCannotBeOpened) {
  store::MemoryStore store;
  std::shared_ptr<Segment> second;
  std::thread refuses_once([&] {
    store.get("g/segment/0/path", Deadline::in(20s));
    store.set("g/segment/0/1", "cannot open: Permission denied");
    EXPECT_EQ(store.get("g/segment/0/verdict", Deadline::in(20s)), "again");
    const std::string path = store.get("g/segment/1/path", Deadline::in(20s));
    EXPECT_THAT(path, HasSubstr("/dev/shm/trireme-"));
    second = Segment::attach(open_segment(path).get(), kShape);
    store.set("g/segment/1/1", "go");
  });
  const auto first = meet_as(store, 0, kShape, kAllFileKinds);
  refuses_once.join();
  EXPECT_NE(first, nullptr);
  EXPECT_TRUE(testing::nothing_left());
}

TEST(Rendezvous, WhoCannotAttachIsNamedEverywhere) {
  store::MemoryStore store;
  std::string theirs;
  std::thread other([&] {
    theirs = message_of<PeerError>([&] { meet_as(store, 1, {2, 8192}, {FileKind::anonymous}); });
  });
  const std::string mine = message_of<PeerError>([&] { meet_as(store, 0, kShape, {FileKind::anonymous}); });
  other.join();
  EXPECT_THAT(mine, HasSubstr("rank 1: the shared memory has"));
  EXPECT_THAT(theirs, HasSubstr("rank 1: the shared memory has"));
}

TEST(Rendezvous, RankZeroWithoutMemoryTellsTheOthers) {
  store::MemoryStore store;
  const Shape huge{2, size_t{1} << 50};
  std::string theirs;
  std::thread other([&] { theirs = message_of<PeerError>([&] { meet_as(store, 1, huge, {FileKind::named}); }); });
  EXPECT_THROW(meet_as(store, 0, huge, {FileKind::named}), SystemError);
  other.join();
  EXPECT_THAT(theirs, HasSubstr("rank 0 has no shared memory"));
}

TEST(Rendezvous, AMissingRankEndsByTheDeadline) {
  store::MemoryStore store;
  EXPECT_THROW(meet(store, "g/", {0, 2}, kShape, kAllFileKinds, Deadline::in(1ms)), PeerError);
  EXPECT_TRUE(testing::nothing_left());
}

}  // namespace
}  // namespace trireme::comm::shm
