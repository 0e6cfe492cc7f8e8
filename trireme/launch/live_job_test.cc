#include "trireme/launch/live_job.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/owner_lock.h"

namespace trireme::launch {
namespace {

TEST(LiveJob, IsGoneWhenNobodyHasTheLock) {
  const TempDir folder;
  write_file_atomically(folder.path() / "live.json", state_json({.state = "running"}));
  {
    const OwnerLock launcher(folder.path() / ".launch.lock");
    EXPECT_EQ(live_job_view(folder.path()).state, "running");
  }
  EXPECT_EQ(live_job_view(folder.path()).state, "gone") << "the pid in the lock is that of a process that lives";
}

TEST(LiveJob, AProcessThatIsNoLauncherHasNoFolder) {
  EXPECT_THROW(live_job_folder("1999999999"), UsageError);
}

}  // namespace
}  // namespace trireme::launch
