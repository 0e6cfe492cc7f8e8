// One rank of the tests of this folder: trireme launch -n 4 comm_ranks matrix
//   matrix | random COUNT SEED | die KIND RANK | leave RANK | late RANK | mismatch WHAT | drop | abort | at_once
// Ends with 0 when everything was as it must be, else with 1 and a line that says what was not.
#include <fmt/core.h>

#include <functional>
#include <map>
#include <string>

#include "modes.h"

namespace {

using namespace trireme;

void run_mode(const World& world, const std::string& mode, const std::function<std::string(int)>& argument) {
  const std::map<std::string, std::function<void()>> modes = {
      {"matrix", [&] { ranks::run_matrix(world); }},
      {"random", [&] { ranks::run_random(world, std::stoi(argument(0)), std::stoul(argument(1))); }},
      {"die", [&] { ranks::run_die(world, argument(0), std::stoi(argument(1))); }},
      {"leave", [&] { ranks::run_leave(world, std::stoi(argument(0))); }},
      {"late", [&] { ranks::run_late(world, std::stoi(argument(0))); }},
      {"mismatch", [&] { ranks::run_mismatch(world, argument(0)); }},
      {"drop", [&] { ranks::run_drop(world); }},
      {"abort", [&] { ranks::run_abort(world); }},
      {"at_once", [&] { ranks::run_at_once(world); }},
  };
  modes.at(mode)();
}

}  // namespace

int main(int argc, char** argv) {
  int rank = -1;
  try {
    const World world = init_parallel_env();
    rank = world.rank();
    if (rank == 0) fmt::print("backend {}\n", get_backend());
    run_mode(world, argc > 1 ? argv[1] : "", [&](int i) -> std::string { return argc > i + 2 ? argv[i + 2] : ""; });
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "comm_ranks, rank {}: {}\n", rank, error.what());
    return 1;
  }
}
