#include "trireme/launch/machine/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using Names = std::vector<std::string>;

std::vector<GpuInfo> eight_gpus() {
  std::vector<GpuInfo> gpus;
  for (int i = 0; i < 8; ++i) gpus.push_back({i, fmt::format("GPU-{}aaa-{}", i / 2, i), "H200", 0, 0});
  return gpus;
}

Names visible(const char* variable) {
  return visible_devices(variable, eight_gpus());
}

Request request(std::optional<Names> devices, std::optional<std::string> processes) {
  Request made;
  made.devices = std::move(devices);
  made.processes = std::move(processes);
  return made;
}

DeviceChoice choose(std::optional<Names> devices, std::optional<std::string> processes, const Names& shown) {
  return choose_devices(request(std::move(devices), std::move(processes)), shown, 16, eight_gpus());
}

TEST(VisibleDevices, UnsetOrAllIsEverything) {
  EXPECT_EQ(visible_devices(std::nullopt, eight_gpus()).size(), 8u);
  EXPECT_EQ(visible("all").size(), 8u);
}

TEST(VisibleDevices, EmptyOrMinusOneIsNothing) {
  for (const char* text : {"", " ", "-1", "-1,0", "NoDevFiles", "none"}) EXPECT_THAT(visible(text), IsEmpty()) << text;
}

TEST(VisibleDevices, TheOrderOfTheListIsKept) {
  EXPECT_THAT(visible("6,2, 4"), ElementsAre("6", "2", "4"));
}

TEST(VisibleDevices, AListEndsBeforeItsFirstInvalidEntry) {
  EXPECT_THAT(visible("0,1,-1,2"), ElementsAre("0", "1"));
  EXPECT_THAT(visible("0,1,8,2"), ElementsAre("0", "1"));
  EXPECT_THAT(visible("0,,2"), ElementsAre("0"));
  EXPECT_THAT(visible("0,x,2"), ElementsAre("0"));
  EXPECT_THAT(visible("99999999999999999999"), IsEmpty());
}

TEST(VisibleDevices, NumbersAreReadAsStrtoulDoes) {
  EXPECT_THAT(visible("1gpu,02"), ElementsAre("1", "2"));
}

TEST(VisibleDevices, ARepeatedEntryVoidsTheList) {
  EXPECT_THAT(visible("0,1,0"), IsEmpty());
  EXPECT_THAT(visible("GPU-1aaa-2,GPU-1aaa-2"), IsEmpty());
}

TEST(VisibleDevices, UuidsMayBeShortenedWhileUnique) {
  EXPECT_THAT(visible("GPU-1aaa-3,GPU-0aaa-0"), ElementsAre("GPU-1aaa-3", "GPU-0aaa-0"));
  EXPECT_THAT(visible("GPU-1aaa-3,GPU-2,GPU-0aaa-0"), ElementsAre("GPU-1aaa-3")) << "GPU-2 is ambiguous";
  EXPECT_THAT(visible("GPU-9"), IsEmpty());
  EXPECT_THAT(visible_devices("GPU-7", {{0, "GPU-7f00", "", 0, 0}}), ElementsAre("GPU-7f00"));
}

TEST(VisibleDevices, KindsDoNotMix) {
  EXPECT_THAT(visible("0,GPU-1aaa-3"), ElementsAre("0"));
  EXPECT_THAT(visible("GPU-1aaa-3,0"), ElementsAre("GPU-1aaa-3"));
}

TEST(VisibleDevices, MigInstancesAreTakenOnTrust) {
  EXPECT_THAT(visible("MIG-11,MIG-22"), ElementsAre("MIG-11", "MIG-22"));
}

TEST(VisibleDevices, NoGpuMeansNone) {
  EXPECT_THAT(visible_devices("0,1", {}), IsEmpty());
  EXPECT_THAT(visible_devices("MIG-1", {}), IsEmpty());
  EXPECT_THAT(visible_devices(std::nullopt, {}), IsEmpty());
}

TEST(ChooseDevices, DefaultIsOneProcessForEachVisibleGpu) {
  const DeviceChoice choice = choose({}, {}, {"4", "5"});
  EXPECT_THAT(choice.devices, ElementsAre("4", "5"));
  EXPECT_EQ(choice.processes, 2);
  EXPECT_EQ(choice.warning, "");
}

TEST(ChooseDevices, DefaultWithoutGpuIsOneProcess) {
  const DeviceChoice choice = choose({}, {}, {});
  EXPECT_THAT(choice.devices, IsEmpty());
  EXPECT_EQ(choice.processes, 1);
}

TEST(ChooseDevices, ANumberTakesTheFirstDevices) {
  EXPECT_THAT(choose({}, "2", {"4", "5", "6"}).devices, ElementsAre("4", "5"));
  EXPECT_THAT(choose({}, "1", {"4", "5", "6"}).devices, ElementsAre("4"));
  EXPECT_EQ(choose({}, "4", {}).processes, 4);
  EXPECT_THAT(choose({}, "4", {}).devices, IsEmpty());
}

TEST(ChooseDevices, MoreProcessesThanDevicesShareWithAWarning) {
  const DeviceChoice choice = choose({}, "4", {"0", "1"});
  EXPECT_EQ(choice.processes, 4);
  EXPECT_THAT(choice.devices, ElementsAre("0", "1"));
  EXPECT_THAT(choice.warning, AllOf(HasSubstr("4 processes share 2 GPUs (0,1)"), HasSubstr("NCCL")));
  EXPECT_THAT(choose(Names{"3"}, "2", {"3"}).warning, HasSubstr("2 processes share 1 GPU (3)"));
}

TEST(ChooseDevices, AListIsTakenInItsOrder) {
  const DeviceChoice choice = choose(Names{"6", "5"}, {}, {"4", "5", "6", "7"});
  EXPECT_THAT(choice.devices, ElementsAre("6", "5"));
  EXPECT_EQ(choice.processes, 2);
}

TEST(ChooseDevices, FewerProcessesThanListedDevicesGetBlocks) {
  const Names four{"0", "1", "2", "3"};
  EXPECT_THAT(choose(four, "1", four).devices, ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(choose(four, "2", four).devices, ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(choose(four, "2", four).processes, 2);
  EXPECT_THAT([&] { choose(four, "3", four); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("4 devices"), HasSubstr("3 processes"), HasSubstr("-n 4"))));
}

TEST(ChooseDevices, WordsForTheNumber) {
  EXPECT_EQ(choose({}, "gpu", {"4", "5"}).processes, 2);
  EXPECT_EQ(choose(Names{"5"}, "gpu", {"4", "5"}).processes, 1);
  EXPECT_EQ(choose({}, "cpu", {"4", "5"}).processes, 16);
  EXPECT_THAT(choose({}, "cpu", {"4", "5"}).devices, IsEmpty());
  EXPECT_EQ(choose({}, "auto", {"4", "5"}).processes, 2);
  EXPECT_EQ(choose({}, "auto", {}).processes, 16);
  EXPECT_EQ(choose_devices(request({}, "cpu"), {}, 0).processes, 1);
  EXPECT_THAT([] { choose({}, "gpu", {}); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("-n gpu"), HasSubstr("no GPU is visible"))));
  EXPECT_THAT([] { choose(Names{"4"}, "cpu", {"4"}); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("-n cpu"), HasSubstr("--gpus"))));
  EXPECT_THAT([] { choose({}, "many", {}); }, ThrowsMessage<UsageError>(HasSubstr("-n many")));
}

TEST(ChooseDevices, AnInvisibleDeviceIsNamedWithTheVisibleOnes) {
  EXPECT_THAT(
      [] {
        choose(Names{"5", "9"}, {}, {"4", "5"});
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("--gpus 9"), HasSubstr("visible are 4,5"))));
  EXPECT_THAT([] { choose(Names{"0"}, {}, {}); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("--gpus 0"), HasSubstr("no GPU is visible here"))));
}

TEST(ChooseDevices, NumbersAndUuidsStandForEachOther) {
  EXPECT_THAT(choose(Names{"3"}, {}, {"GPU-1aaa-2", "GPU-1aaa-3"}).devices, ElementsAre("GPU-1aaa-3"));
  EXPECT_THAT(choose(Names{"GPU-1aaa-3"}, {}, {"2", "3"}).devices, ElementsAre("3"));
  EXPECT_THAT(choose(Names{"GPU-3aaa"}, {}, {"GPU-1aaa-3", "GPU-3aaa-6"}).devices, ElementsAre("GPU-3aaa-6"));
  EXPECT_THAT([] { choose(Names{"3", "GPU-1aaa-3"}, {}, {"3"}); }, ThrowsMessage<UsageError>(HasSubstr("twice")));
}

TEST(MayUseGpus, AsksNvmlOnlyWhenItMatters) {
  EXPECT_TRUE(may_use_gpus(request({}, {}), std::nullopt));
  EXPECT_TRUE(may_use_gpus(request({}, "2"), "0,1"));
  EXPECT_TRUE(may_use_gpus(request(Names{"0"}, {}), "-1"));
  EXPECT_FALSE(may_use_gpus(request({}, "cpu"), std::nullopt));
  for (const char* none : {"", " ", "-1"}) EXPECT_FALSE(may_use_gpus(request({}, "2"), none));
}

TEST(DetectGpus, DescribesWhatIsThere) {
  const auto gpus = detect_gpus();
  for (size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_EQ(gpus[i].index, static_cast<int>(i));
    EXPECT_THAT(gpus[i].uuid, testing::StartsWith("GPU-"));
    EXPECT_FALSE(gpus[i].name.empty());
    EXPECT_GT(gpus[i].memory_total, uint64_t{1} << 30);
    EXPECT_LE(gpus[i].memory_free, gpus[i].memory_total);
  }
}

}  // namespace
}  // namespace trireme::launch
