// Who I am among how many: all that sharding code needs to know of a world.
//
//   RankInfo me = ParallelEnv::from_environment();
//   for (size_t i = me.rank; i < count; i += me.size) use(i);
#pragma once

namespace trireme {

struct RankInfo {
  int rank = 0;
  int size = 1;
  bool operator==(const RankInfo&) const = default;
};

}  // namespace trireme
