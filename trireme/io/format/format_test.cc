// What needs no tensors: the safetensors header, manifests and event files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"
#include "trireme/io/format/events.h"
#include "trireme/io/format/manifest.h"
#include "trireme/io/format/safetensors_format.h"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string length_bytes(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof length};
}

std::string file_with(const std::string& header, size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, 'x');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(file, file.size(), "f.safetensors");
}

std::string refusal(const std::string& header, size_t data_bytes) {
  return message_of<UsageError>([&] { parse(file_with(header, data_bytes)); });
}

TEST(Header, TellsTensorsAndMetadata) {
  const auto header =
      parse(file_with(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
                      R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                      R"("none":{"dtype":"BF16","shape":[0,4],"data_offsets":[32,32]}}  )",
                      32));
  ASSERT_THAT(header.tensors, SizeIs(3));
  EXPECT_EQ(header.tensors[0].name, "b");
  EXPECT_EQ(header.tensors[0].dtype, "F32");
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(header.tensors[0].begin, 8u);
  EXPECT_EQ(header.tensors[1].end, 8u);
  EXPECT_THAT(header.tensors[1].shape, IsEmpty());
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(Header, OfNoTensors) {
  EXPECT_THAT(parse(file_with("{}", 0)).tensors, IsEmpty());
}

TEST(Header, MustFitIntoTheFile) {
  EXPECT_THAT(message_of<UsageError>([] { parse("abc"); }), AllOf(HasSubstr("f.safetensors"), HasSubstr("3 bytes")));
  EXPECT_THAT(message_of<UsageError>([] { parse(length_bytes(1000) + "{}"); }),
              AllOf(HasSubstr("1000 bytes"), HasSubstr("only 10")));
  EXPECT_THAT(message_of<UsageError>([] { parse(length_bytes(UINT64_MAX) + "{}"); }), HasSubstr("above the limit"));
  EXPECT_THAT(message_of<UsageError>([] { parse("PK\3\4 a .pth file is a zip file"); }), HasSubstr("converted"));
}

TEST(Header, MustBeAJsonObjectOfObjects) {
  EXPECT_THAT(refusal("{\"a\":", 0), HasSubstr("not JSON at byte"));
  EXPECT_THAT(refusal("[1,2]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{} {}", 0), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(R"({"a":7})", 0), HasSubstr("'a' in its header is not an object"));
  EXPECT_THAT(refusal(R"({"a":[7]})", 0), HasSubstr("'a' in its header is not an object"));
  EXPECT_THAT(refusal(R"({"a":{"b":{"c":{"d":{}}}}})", 0), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("{\"\xff\":{}}", 0), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(100'000, '['), 0), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", 0), HasSubstr("metadata 'a' is not text"));
}

TEST(Header, HasEachNameOnce) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal(R"({"w":)" + tensor + R"(,"w":)" + tensor + "}", 1), HasSubstr("the name 'w' twice"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("'dtype' twice in 'w'"));
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}";
}

TEST(Header, SaysWhatIsWrongWithATensor) {
  EXPECT_NO_THROW(parse(file_with(tensor("F32", "2", "0,8"), 8)));
  EXPECT_THAT(refusal(tensor("F4", "2", "0,1"), 1), AllOf(HasSubstr("tensor 'w' has dtype 'F4'"), HasSubstr("BF16")));
  EXPECT_THAT(refusal(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("no dtype"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1), HasSubstr("no list shape"));
  EXPECT_THAT(refusal(tensor("F32", "-2", "0,8"), 8), HasSubstr("-2 in its shape"));
  EXPECT_THAT(refusal(tensor("F32", "2.0", "0,8"), 8), HasSubstr("2.0 in its shape"));
  EXPECT_THAT(refusal(tensor("F32", "18446744073709551615", "0,8"), 8), HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal(tensor("F32", "1e999", "0,8"), 8), HasSubstr("too large in 'w'"));
  EXPECT_THAT(refusal(tensor("F32", "\"2\"", "0,8"), 8), HasSubstr("in its shape"));
  EXPECT_THAT(refusal(tensor("F32", "2", "0"), 8), HasSubstr("has 1 data_offsets instead of 2"));
}

TEST(Header, ComparesBytesWithShape) {
  EXPECT_THAT(refusal(tensor("F32", "2,3", "0,20"), 20), HasSubstr("F32 [2, 3] needs 24 bytes, but has 20"));
  EXPECT_THAT(refusal(tensor("F32", "2,3", "0,24"), 20), HasSubstr("from byte 0 to 24 of 20 bytes"));
  EXPECT_THAT(refusal(tensor("F32", "2,3", "24,0"), 24), HasSubstr("from byte 24 to 0"));
  EXPECT_THAT(refusal(tensor("F64", "4294967296,4294967296", "0,0"), 0), HasSubstr("more bytes than can be"));
  EXPECT_THAT(refusal(tensor("F64", "0,9223372036854775807,9", "0,0"), 0), HasSubstr("more bytes than can be"));
  EXPECT_THAT(refusal(tensor("U8", "0,3", "0,1"), 1), HasSubstr("needs 0 bytes, but has 1"));
}

TEST(Header, CoversEachByteOnce) {
  const auto two = [](const char* first, const char* second) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}},"b":{{"dtype":"U8","shape":[4],)"
                       R"("data_offsets":[{}]}}}})",
                       first, second);
  };
  EXPECT_NO_THROW(parse(file_with(two("4,8", "0,4"), 8)));
  EXPECT_THAT(refusal(two("0,4", "2,6"), 6),
              HasSubstr("tensor 'b' begins at byte 2 of the data, but what is before it"));
  EXPECT_THAT(refusal(two("0,4", "0,4"), 4), HasSubstr("begins at byte 0"));
  EXPECT_THAT(refusal(two("0,4", "5,9"), 9), HasSubstr("begins at byte 5"));
  EXPECT_THAT(refusal(two("0,4", "4,8"), 9), HasSubstr("have 8 bytes, but 9 follow"));
}

TEST(Header, WrittenAsItIsRead) {
  std::vector<TensorInfo> tensors{{.name = "small", .dtype = "BOOL", .shape = {3}},
                                  {.name = "\"odd\" \xc3\xa4", .dtype = "F64", .shape = {}},
                                  {.name = "half", .dtype = "F16", .shape = {1, 5}}};
  const std::string start = make_safetensors_header(tensors, {{"key", "value"}});
  EXPECT_EQ(start.size() % 8, 0u);
  const auto header = parse(start + std::string(8 + 10 + 3, '\0'));
  ASSERT_THAT(header.tensors, SizeIs(3));
  EXPECT_EQ(header.metadata.at("key"), "value");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(header.tensors[i].name, tensors[i].name);
    EXPECT_EQ(header.tensors[i].shape, tensors[i].shape);
    EXPECT_EQ(header.tensors[i].begin % element_bytes(header.tensors[i].dtype), 0u) << "aligned";
  }
}

// A header that is accepted describes each byte of the data once, whatever it looks like.
void expect_covered(const SafetensorsHeader& header, uint64_t data_bytes) {
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : header.tensors) {
    uint64_t needed = element_bytes(tensor.dtype);
    for (const int64_t size : tensor.shape) needed *= static_cast<uint64_t>(size);
    EXPECT_EQ(tensor.end - tensor.begin, needed);
    bytes += needed;
  }
  EXPECT_EQ(bytes, data_bytes);
}

TEST(Header, WithRandomDamageIsRefusedOrStillWhole) {
  std::vector<TensorInfo> tensors{{.name = "w", .dtype = "F32", .shape = {2, 3}},
                                  {.name = "b", .dtype = "I8", .shape = {10}}};
  const std::string whole = make_safetensors_header(tensors, {{"k", "v"}}) + std::string(34, '\0');
  const std::string likely = "0123456789[]{},:\"- .eFIU";
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random()) % limit; };
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = whole;
    for (size_t edit = 0; edit <= below(3); ++edit)
      damaged[below(damaged.size() - 34)] = below(2) ? likely[below(likely.size())] : static_cast<char>(random());
    try {
      const auto header = parse(damaged);
      expect_covered(header, damaged.size() - header.data_start);
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST(Header, OfManyTensorsIsQuick) {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 20'000; ++i) tensors.push_back({.name = std::to_string(i), .dtype = "U8", .shape = {1}});
  const std::string start = make_safetensors_header(tensors, {});
  EXPECT_THAT(parse(start + std::string(20'000, '\0')).tensors, SizeIs(20'000));
}

TEST(WriteSafetensors, RefusesNamesThatCannotBe) {
  const TempDir folder;
  const auto write = [&](const std::vector<TensorBytes>& tensors) {
    return message_of<UsageError>([&] { write_safetensors(folder.path() / "x", tensors); });
  };
  EXPECT_THAT(write({{"a", "U8", {1}, "x"}, {"a", "U8", {1}, "y"}}), HasSubstr("two tensors to write are named 'a'"));
  EXPECT_THAT(write({{"__metadata__", "U8", {1}, "x"}}), HasSubstr("__metadata__"));
  EXPECT_THAT(write({{"\xff", "U8", {1}, "x"}}), HasSubstr("not UTF-8"));
  EXPECT_EQ(entries_in(folder.path()), 0u);
}

TEST(WriteSafetensors, ToAFullDiskKeepsTheOldFile) {
  const TempDir folder;
  const fs::path path = folder.path() / "x.safetensors";
  write_safetensors(path, {{"a", "U8", {1}, "x"}});
  const std::string before = content_of(path);
  const std::string large(100'000, 'y');
  std::string message;
  {
    const FileSizeLimit limit(50'000);
    message = message_of<SystemError>([&] { write_safetensors(path, {{"a", "U8", {100'000}, large}}); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr(path.string()), HasSubstr("bytes needed"), HasSubstr("is kept")));
  EXPECT_EQ(content_of(path), before);
  EXPECT_EQ(entries_in(folder.path()), 1u) << "the temporary file is gone";
}

TEST(Manifest, IsReadAsItWasWritten) {
  const Manifest manifest{.model = "ResNet50",
                          .optimizer = "Adam",
                          .step = 1234567890123,
                          .epoch = 7,
                          .world_size = 4,
                          .config = "Global:\n  epochs: 3 # \xc3\xa4\n",
                          .state = {{"sampler", "sampler 1 …"}, {"empty", ""}},
                          .name = "step_3",
                          .sequence = 9,
                          .files = {{"model.safetensors", {uint64_t{1} << 40, 0xdeadbeef}}}};
  EXPECT_EQ(parse_manifest(to_json(manifest), "m"), manifest);
}

TEST(Manifest, WithAnyFlippedByteIsRefusedOrTheSame) {
  const Manifest manifest{.model = "a", .step = 12, .state = {{"key", "value"}}, .files = {{"x.safetensors", {3, 4}}}};
  const std::string text = to_json(manifest);
  int refused = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    try {
      EXPECT_EQ(parse_manifest(damaged, "m"), manifest) << "byte " << i;
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(text.size()) / 2);
}

TEST(Manifest, SaysWhatIsWrong) {
  const auto refusal = [](const std::string& text) {
    return message_of<UsageError>([&] { parse_manifest(text, "m.json"); });
  };
  EXPECT_THAT(refusal(""), HasSubstr("m.json"));
  EXPECT_THAT(refusal("{}"), HasSubstr("format"));
  EXPECT_THAT(refusal(R"({"format":2,"content":{}})"), AllOf(HasSubstr("format 2"), HasSubstr("format 1")));
  EXPECT_THAT(refusal(R"({"format":1,"crc32c":"00000000","content":{}})"), HasSubstr("00000000"));
  EXPECT_THAT(message_of<UsageError>([] { to_json({.config = "\xff"}); }), HasSubstr("not UTF-8"));
}

// The records of an event file: length, sum of the length, data, sum of the data.
std::vector<std::string> records(const fs::path& path) {
  const std::string content = content_of(path);
  std::vector<std::string> data;
  for (size_t at = 0; at + 12 <= content.size();) {
    uint64_t length = 0;
    std::memcpy(&length, content.data() + at, sizeof length);
    data.push_back(content.substr(at + 12, length));
    at += 16 + length;
  }
  return data;
}

TEST(Events, FirstComesTheVersion) {
  const TempDir folder;
  const EventWriter events(folder.path() / "made/here");
  EXPECT_THAT(events.file().filename().string(), HasSubstr("tfevents"));
  ASSERT_THAT(records(events.file()), SizeIs(1));
  EXPECT_THAT(records(events.file())[0], HasSubstr("brain.Event:2"));
}

TEST(Events, WaitForAFlush) {
  const TempDir folder;
  EventWriter events(folder.path(), {.flush_every = std::chrono::hours(1)});
  events.add_scalar("loss", 0.5, 3);
  events.add_scalar("rate", 0.1, 4);
  EXPECT_THAT(records(events.file()), SizeIs(1));
  events.flush();
  ASSERT_THAT(records(events.file()), SizeIs(3));
  EXPECT_THAT(records(events.file())[1], HasSubstr(std::string("loss\x15\0\0\0\x3f", 9)));
}

TEST(Events, FlushByTimeAndByTheDestructor) {
  const TempDir folder;
  fs::path file;
  {
    EventWriter events(folder.path(), {.flush_every = std::chrono::milliseconds(0)});
    events.add_scalar("loss", 0.5, 3);
    file = events.file();
    EXPECT_THAT(records(file), SizeIs(2));
  }
  EventWriter second(folder.path());
  EXPECT_NE(second.file(), file) << "two writers never share a file";
}

TEST(Events, OnAFullDiskLeaveWholeRecords) {
  const TempDir folder;
  EventWriter events(folder.path(), {.flush_every = std::chrono::hours(1)});
  const auto before = fs::file_size(events.file());
  std::string message;
  {
    const FileSizeLimit limit(before + 10);
    events.add_scalar("loss", 1, 1);
    message = message_of<SystemError>([&] { events.flush(); });
  }
  EXPECT_THAT(message, HasSubstr(events.file().string()));
  EXPECT_EQ(fs::file_size(events.file()), before);
  events.add_scalar("loss", 1, 2);
  events.flush();
  EXPECT_THAT(records(events.file()), SizeIs(2));
}

TEST(Events, CannotBeWrittenInAFile) {
  const TempDir folder;
  put(folder.path() / "file", "");
  EXPECT_THROW(EventWriter(folder.path() / "file"), SystemError);
}

}  // namespace
}  // namespace trireme::io
