// Without a plugin. With one, under mpirun: mpi/test_ranks.cc.
#include "trireme/comm/engine/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/engine/shm/test_ranks.h"
#include "trireme/core/env.h"
#include "trireme/core/file.h"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The answer is found once in a process, so one test for all.
TEST(MpiAbsence, HasAReasonThatNamesTheFile) {
  const TempDir folder;
  write_file_atomically(folder.path() / "libtrireme_mpi.so", "no library");
  env::set("TRIREME_PLUGIN_DIR", folder.path());
  const auto reason = why_no_mpi();
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, AllOf(HasSubstr(folder.path() / "libtrireme_mpi.so"), HasSubstr("cannot load")));
  EXPECT_THAT(message_of<UsageError>([] { make_mpi_engine({}); }), HasSubstr(*reason));
  env::set("TRIREME_PLUGIN_DIR", std::nullopt);
}

}  // namespace
}  // namespace trireme::comm
