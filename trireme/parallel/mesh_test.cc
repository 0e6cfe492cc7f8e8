#include "trireme/parallel/mesh.h"

#include <gtest/gtest.h>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/parallel/mesh_layout.h"
#include "trireme/parallel/test_ranks.h"

namespace trireme::parallel {
namespace {

using Ranks = std::vector<int>;

std::string mesh_error(const std::vector<MeshAxis>& axes, int ranks) {
  try {
    complete_axes(axes, ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MeshAxes, OneSizeIsWorkedOut) {
  const std::vector<MeshAxis> axes = complete_axes({{"pipe", 2}, {"data", -1}, {"model", 2}}, 12);
  EXPECT_EQ(axes[1].size, 3);
}

TEST(MeshAxes, SizesMustFitTheRanks) {
  EXPECT_EQ(mesh_error({{"data", 2}, {"model", 3}}, 8),
            "Mesh: data 2 x model 3 makes 6 places, but there are 8 ranks; one size may be -1 for what is left");
  EXPECT_EQ(mesh_error({{"data", -1}, {"model", 3}}, 8),
            "Mesh: data -1 x model 3: the sizes that are given multiply to 3, which does not divide the 8 ranks");
}

TEST(MeshAxes, BadAxesAreNamed) {
  EXPECT_EQ(mesh_error({}, 1), "Mesh: no axes; name at least one, such as {\"data\", -1}");
  EXPECT_EQ(mesh_error({{"", 2}}, 2), "Mesh: an axis of size 2 has no name");
  EXPECT_EQ(mesh_error({{"data", 1}, {"data", 2}}, 2), "Mesh: axis 'data' is named twice");
  EXPECT_EQ(mesh_error({{"data", 0}}, 2),
            "Mesh: axis 'data' has size 0; it must be at least 1, or -1 for what is left");
  EXPECT_EQ(mesh_error({{"data", -1}, {"model", -1}}, 2),
            "Mesh: axis 'model' is the second of size -1; only one can be worked out");
}

TEST(MeshAxes, TheLastAxisVariesFastest) {
  const std::vector<MeshAxis> axes = {{"pipe", 2}, {"data", 3}, {"model", 2}};
  EXPECT_EQ(coordinate_of(0, axes), (Ranks{0, 0, 0}));
  EXPECT_EQ(coordinate_of(1, axes), (Ranks{0, 0, 1}));
  EXPECT_EQ(coordinate_of(9, axes), (Ranks{1, 1, 1}));
}

TEST(MeshAxes, LinesAndPlanes) {
  const std::vector<MeshAxis> axes = {{"pipe", 2}, {"data", 3}, {"model", 2}};
  EXPECT_EQ(ranks_along({0}, 9, axes), (Ranks{3, 9}));
  EXPECT_EQ(ranks_along({1}, 9, axes), (Ranks{7, 9, 11}));
  EXPECT_EQ(ranks_along({2}, 9, axes), (Ranks{8, 9}));
  EXPECT_EQ(ranks_along({0, 1}, 9, axes), (Ranks{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(ranks_along({1, 0}, 9, axes), (Ranks{1, 7, 3, 9, 5, 11}));
}

TEST(Mesh, EachLineIsAGroup) {
  testing::run_ranks(8, [](const Group& world) {
    const Mesh mesh(world, {{"pipe", 2}, {"data", -1}, {"model", 2}});
    EXPECT_EQ(mesh.size("data"), 2);
    EXPECT_EQ(mesh.describe(),
              fmt::format("pipe {}, data {}, model {}", world.rank() / 4, world.rank() / 2 % 2, world.rank() % 2));
    for (const char* axis : {"pipe", "data", "model"}) {
      EXPECT_EQ(mesh[axis].rank(), mesh.rank(axis));
      EXPECT_EQ(mesh[axis].size(), 2);
      torch::Tensor sum = torch::full({1}, world.rank());
      all_reduce(sum, ReduceOp::sum, mesh[axis]);
      const int stride = std::string(axis) == "pipe" ? 4 : std::string(axis) == "data" ? 2 : 1;
      const int first = world.rank() - mesh.rank(axis) * stride;
      EXPECT_EQ(sum.item<int>(), first + first + stride) << axis;
    }
    EXPECT_EQ(mesh.flatten({"pipe", "model"}).ranks().size(), 4u);
    EXPECT_THROW(mesh["tensor"], UsageError);
    EXPECT_THROW(mesh.flatten({"data", "data"}), UsageError);
  });
}

}  // namespace
}  // namespace trireme::parallel
