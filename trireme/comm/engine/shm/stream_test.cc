#include "trireme/comm/engine/shm/stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/comm/engine/shm/test_ranks.h"

namespace trireme::comm::shm {
namespace {

// Every beginning within a line, lengths around the line, the page and the size from which it goes past the caches.
TEST(StreamCopy, CopiesAllAndNothingElse) {
  const testing::Bytes source = testing::random_values(DType::u8, 20000, 1);
  for (const size_t shift : {0u, 1u, 15u, 16u, 63u})
    for (const size_t size : {0u, 1u, 63u, 64u, 4095u, 4096u, 4097u, 4160u, 9000u}) {
      testing::Bytes target(20000, std::byte{7});
      stream_copy(target.data() + 64 + shift, source.data() + 3, size);
      testing::Bytes expected(20000, std::byte{7});
      std::copy_n(source.begin() + 3, size, expected.begin() + 64 + static_cast<ptrdiff_t>(shift));
      ASSERT_EQ(target, expected) << size << " bytes at " << shift;
    }
}

TEST(StreamCopy, OfNothingNeedsNoMemory) {
  EXPECT_NO_THROW(stream_copy(nullptr, nullptr, 0));
}

}  // namespace
}  // namespace trireme::comm::shm
