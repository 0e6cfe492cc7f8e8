#include "trireme/core/owner_lock.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/net.h"

namespace trireme {
namespace {

TEST(OwnerLock, TellsTheSecondWhoTheFirstIs) {
  const TempDir folder;
  const auto file = folder.path() / ".lock";
  {
    const OwnerLock first(file);
    EXPECT_EQ(first.held_by(), std::nullopt);
    EXPECT_EQ(OwnerLock(file).held_by(), fmt::format("process {} on {}", ::getpid(), host_name()));
    EXPECT_NE(OwnerLock(file).held_by(), std::nullopt) << "who was refused has changed nothing";
  }
  EXPECT_EQ(OwnerLock(file).held_by(), std::nullopt);
}

TEST(OwnerLock, AFolderThatIsNotThereIsAnError) {
  EXPECT_THROW(OwnerLock("/nowhere/.lock"), SystemError);
}

}  // namespace
}  // namespace trireme
