#include <fmt/core.h>
#include <torch/torch.h>

#include <deque>
#include <random>

#include "cases.h"
#include "modes.h"

namespace trireme::ranks {
namespace {

constexpr size_t kInFlight = 8;

// The same numbers on every rank.
class Stream {
 public:
  explicit Stream(uint64_t seed) : random_(seed) {}
  size_t below(size_t end) { return random_() % end; }
  template <typename List>
  const auto& one_of(const List& list) {
    return *(std::begin(list) + static_cast<ptrdiff_t>(below(std::size(list))));
  }

 private:
  std::mt19937_64 random_;
};

// A group, and its size also where this rank is no member: the stream must go on alike.
struct Club {
  Group group;
  int size;
};

std::vector<Club> make_clubs(const World& world) {
  std::vector<int> backwards, but_first, ends = {0};
  for (int rank = world.size() - 1; rank >= 0; --rank) backwards.push_back(rank);
  for (int rank = 1; rank < world.size(); ++rank) but_first.push_back(rank);
  if (world.size() > 1) ends = {world.size() - 1, 0};
  std::vector<Club> clubs = {{world, world.size()}, {world.new_group(backwards), world.size()}};
  if (!but_first.empty()) clubs.push_back({world.new_group(but_first), static_cast<int>(but_first.size())});
  clubs.push_back({world.new_group(ends), static_cast<int>(ends.size())});
  // One half is a group for some ranks, the other half for the others: both at the same place of the stream.
  const Group half = world.split(world.rank() % 2);
  clubs.push_back({half, half.size()});
  return clubs;
}

Shape draw_shape(Stream& stream) {
  static const std::vector<Shape> usual = {{}, {0, 4}, {1}, {2, 3, 4, 5}, {7, 3}, {64}, {3, 1000}};
  return stream.below(200) == 0 ? Shape{3, 50021} : stream.one_of(usual);
}

Case draw_case(Stream& stream, uint64_t step) {
  Case c{.type = stream.one_of(kTypes),
         .op = stream.one_of(kOps),
         .layout = stream.one_of(kLayouts),
         .shape = draw_shape(stream),
         .async = stream.below(3) != 0,
         .root = static_cast<int>(stream.below(1 << 20)),
         .seed = step};
  if (!has_reduction(c.type, c.op)) c.op = ReduceOp::sum;
  return c;
}

// Operations under way. They are waited for in any order, which may be another one on each rank.
class Flight {
 public:
  explicit Flight(uint64_t seed) : stream_(seed) {}
  void add(Started started) {
    under_way_.push_back(std::move(started));
    while (under_way_.size() > kInFlight || (!under_way_.empty() && stream_.below(3) == 0)) land();
  }
  void land_all() {
    while (!under_way_.empty()) land();
  }

 private:
  void land() {
    const auto next = under_way_.begin() + static_cast<ptrdiff_t>(stream_.below(under_way_.size()));
    next->work.wait();
    next->check();
    under_way_.erase(next);
  }

  Stream stream_;
  std::deque<Started> under_way_;
};

}  // namespace

void run_random(const World& world, int count, uint64_t seed) {
  const std::vector<Club> clubs = make_clubs(world);
  Stream stream(seed);
  Flight flight(seed + static_cast<uint64_t>(world.rank()));
  int mine = 0;
  for (int step = 0; step < count; ++step) {
    const Kind& kind = stream.one_of(kinds());
    const Club& club = stream.one_of(clubs);
    Case c = draw_case(stream, static_cast<uint64_t>(step));
    if (!club.group.is_member()) continue;
    c.group = club.group;
    c.root %= club.size;
    flight.add(kind.start(c));
    ++mine;
  }
  flight.land_all();
  fmt::print("rank {}: {} of {} random operations as they must be, by {}\n", world.rank(), mine, count, get_backend());
}

}  // namespace trireme::ranks
