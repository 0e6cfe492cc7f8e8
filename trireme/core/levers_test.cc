#include "trireme/core/levers.h"

#include <gmock/gmock.h>

#include "trireme/core/test_support.h"
#include "trireme/core/test_variable.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

TEST(Levers, AreOnUnlessNamed) {
  const ScopedVariable none("TRIREME_WITHOUT", "");
  EXPECT_TRUE(is_on(Lever::blocks));
  EXPECT_TRUE(is_on(Lever::scaled_jpeg));
  const ScopedVariable two("TRIREME_WITHOUT", "scaled_jpeg,fused_optimizers");
  EXPECT_TRUE(is_on(Lever::blocks));
  EXPECT_TRUE(is_on(Lever::streaming_stores));
  EXPECT_FALSE(is_on(Lever::fused_optimizers));
  EXPECT_FALSE(is_on(Lever::scaled_jpeg));
}

TEST(Levers, ASlipIsAnErrorThatListsThem) {
  const ScopedVariable slip("TRIREME_WITHOUT", "blocks,optimizers");
  EXPECT_THAT(refusal([] { is_on(Lever::blocks); }),
              HasSubstr("TRIREME_WITHOUT is 'blocks,optimizers', and there is no 'optimizers' to switch off; "
                        "write one or more of blocks,fused_optimizers,streaming_stores,scaled_jpeg"));
}

}  // namespace
}  // namespace trireme
