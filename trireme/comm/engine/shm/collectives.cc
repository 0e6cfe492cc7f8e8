// The words round, piece, slice, in and out are those of exchange.h.
//
// all_reduce, short: one round. Everyone puts its whole tensor in its buffer; after the sync everyone joins all R of
// them. It reads R times as much as needed and waits once.
//
// all_reduce, long: piece by piece, pipelined. For each piece a rank
//   stages    copies to its `in` area what the others will reduce (all but its own slice, which it reads in place),
//   reduces   its slice, from everyone's `in` areas and its own tensor, into its tensor and its `out` area,
//   collects  the other slices from everyone's `out` areas into its tensor.
// Between stage and reduce, and between reduce and collect, lies a sync. Piece p is staged in the round in which piece
// p-1 is reduced and collected right after it, so P pieces take P+1 rounds:
//
//   round       1          2                     3                     …   P+1
//   before      stage 0    stage 1, reduce 0     stage 2, reduce 1         reduce P-1
//   after sync             collect 0             collect 1                 collect P-1
//
// Reduce of piece p-1 reads the buffers of the round before, while the coming round's are written: the one reading
// before publication that exchange.h allows.
//
// all_reduce, in place: where all ranks' tensors lie in their arenas (arena.h), nothing is staged. In a first round the
// ranks tell each other where; each reduces its slice of the whole tensor from everyone's tensors into its own; after a
// second sync it collects the other slices from the tensors that have them; and after a third no rank reads another's
// tensor any more. It moves 5/8 of the bytes that staging moves, and is twice as fast.
//
// reduce: the first two ways; only the root collects, and what the others compute goes to their `out` areas alone.
//
// reduce_scatter: one round per piece; a rank's `in` area holds R parts, one for each receiver.
//
// Every way joins the contributions of an element in rank order, in one place or in R places alike: all ranks get the
// same bits, every run gets the same bits, and the choice of the way does not change them.
//
// What was learned about speed: reading what another core has written is cheap, writing over what it has read is not
// (2.3 GB/s between cores of an EPYC without a common L3, 9 to 40 with one), so all writes to shared memory go past the
// caches (stream.h: 30 GB/s on both). With that, pieces of 256 to 512 KiB, which stay in a core's own L2 between stage,
// reduce and collect, are the fastest everywhere, and by a quarter faster than those of 1 MiB and more.
#include "trireme/comm/engine/shm/collectives.h"

#include <cstring>
#include <optional>
#include <vector>

#include "trireme/comm/engine/shm/pieces.h"
#include "trireme/comm/engine/shm/reduce.h"
#include "trireme/comm/engine/shm/stream.h"

namespace trireme::comm::shm {
namespace {

// A longer tensor leaves the caches anyway: lines that are overwritten need not be fetched first.
constexpr size_t kCached = size_t{4} << 20;
constexpr size_t kShort = size_t{64} << 10;  // what may be read from the others in one go

bool collects(const Exchange& exchange, int root) {
  return root == kEveryone || root == exchange.me().rank;
}

void reduce_short(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements, int root) {
  stream_copy(exchange.my_in(), data, elements * size_of(dtype));
  exchange.sync();
  if (!collects(exchange, root)) return;
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < exchange.me().size; ++rank) sources.push_back(exchange.in_of(rank));
  reduce(dtype, op, sources, elements, data);
}

class LongReduce {
 public:
  LongReduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements, int root)
      : exchange_(exchange),
        me_(exchange.me()),
        dtype_(dtype),
        op_(op),
        width_(size_of(dtype)),
        data_(data),
        elements_(elements),
        root_(root),
        piece_(exchange.shape().piece_bytes / width_),
        sources_(static_cast<size_t>(me_.size)) {
    if (!collects(exchange_, root_)) scratch_.resize(slice({0, piece_}, 0).size() * width_);
  }

  void run() {
    const size_t count = pieces(elements_, piece_);
    for (size_t step = 0; step <= count; ++step) {
      if (step < count) stage(step);
      if (step > 0) reduce_slice(step - 1);
      exchange_.sync();
      if (step > 0 && collects(exchange_, root_)) collect(step - 1);
    }
  }

 private:
  std::byte* at(size_t element) const { return data_ + element * width_; }
  Range slice(const Range& piece, int rank) const { return slice_of(piece.size(), me_.size, rank); }

  void stage(size_t index) {
    const Range piece = piece_of(elements_, piece_, index);
    const Range mine = slice(piece, me_.rank);
    stream_copy(exchange_.my_in(), at(piece.begin), mine.begin * width_);
    stream_copy(exchange_.my_in() + mine.end * width_, at(piece.begin + mine.end), (piece.size() - mine.end) * width_);
  }

  void reduce_slice(size_t index) {
    const Range piece = piece_of(elements_, piece_, index);
    const Range mine = slice(piece, me_.rank);
    std::byte* own = at(piece.begin + mine.begin);
    for (int rank = 0; rank < me_.size; ++rank)
      sources_[static_cast<size_t>(rank)] = rank == me_.rank ? own : exchange_.in_of(rank) + mine.begin * width_;
    std::byte* result = scratch_.empty() ? own : scratch_.data();
    reduce(dtype_, op_, sources_, mine.size(), result);
    if (root_ != me_.rank) stream_copy(exchange_.my_out(), result, mine.size() * width_);
  }

  void collect(size_t index) {
    const Range piece = piece_of(elements_, piece_, index);
    for (int rank = 0; rank < me_.size; ++rank) {
      const Range theirs = slice(piece, rank);
      if (rank == me_.rank) continue;
      const auto copy = elements_ * width_ > kCached ? stream_copy : copy_bytes;
      copy(at(piece.begin + theirs.begin), exchange_.out_of(rank), theirs.size() * width_);
    }
  }

  Exchange& exchange_;
  const RankInfo me_;
  const DType dtype_;
  const ReduceOp op_;
  const size_t width_;
  std::byte* const data_;
  const size_t elements_;
  const int root_;
  const size_t piece_;  // in elements
  std::vector<const std::byte*> sources_;
  std::vector<std::byte> scratch_;  // for results that this rank's tensor must not get
};

class InPlaceReduce {
 public:
  /// After the round in which the ranks have told where their tensors lie.
  InPlaceReduce(Exchange& exchange, DType dtype, std::byte* data, size_t elements)
      : exchange_(exchange),
        me_(exchange.me()),
        dtype_(dtype),
        width_(size_of(dtype)),
        data_(data),
        elements_(elements) {
    for (int rank = 0; rank < me_.size; ++rank)
      tensors_.push_back(rank == me_.rank ? data : base_of(rank) + told(exchange, rank).value());
  }

  /// Call before the round.
  static void tell(Exchange& exchange, const std::byte* data, size_t bytes) {
    const uint64_t place = exchange.arenas().place_of(data, bytes).value_or(kElsewhere);
    std::memcpy(exchange.my_in(), &place, sizeof place);
  }
  static std::optional<size_t> told(const Exchange& exchange, int rank) {
    uint64_t place = 0;
    std::memcpy(&place, exchange.in_of(rank), sizeof place);
    return place == kElsewhere ? std::nullopt : std::optional<size_t>(place);
  }
  static bool everyone_can(const Exchange& exchange) {
    for (int rank = 0; rank < exchange.me().size; ++rank)
      if (!told(exchange, rank)) return false;
    return true;
  }

  void run(ReduceOp op) {
    reduce_slice(op);
    exchange_.sync();
    collect();
    exchange_.sync();
  }

 private:
  static constexpr uint64_t kElsewhere = UINT64_MAX;

  const std::byte* base_of(int rank) const { return exchange_.arenas().of_rank[static_cast<size_t>(rank)].get(); }

  void reduce_slice(ReduceOp op) {
    const Range mine = slice_of(elements_, me_.size, me_.rank);
    std::vector<const std::byte*> sources;
    for (const std::byte* tensor : tensors_) sources.push_back(tensor + mine.begin * width_);
    reduce(dtype_, op, sources, mine.size(), data_ + mine.begin * width_);
  }

  void collect() {
    const auto copy = elements_ * width_ > kCached ? stream_copy : copy_bytes;
    for (int rank = 0; rank < me_.size; ++rank) {
      const Range theirs = slice_of(elements_, me_.size, rank);
      if (rank == me_.rank) continue;
      const size_t begin = theirs.begin * width_;
      copy(data_ + begin, tensors_[static_cast<size_t>(rank)] + begin, theirs.size() * width_);
    }
  }

  Exchange& exchange_;
  const RankInfo me_;
  const DType dtype_;
  const size_t width_;
  std::byte* const data_;
  const size_t elements_;
  std::vector<const std::byte*> tensors_;  // by rank
};

}  // namespace

size_t one_round_limit(const Shape& shape) {
  return std::min(shape.piece_bytes, kShort / static_cast<size_t>(std::max(1, shape.ranks - 1)));
}

void run_all_reduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements) {
  const size_t bytes = elements * size_of(dtype);
  if (exchange.arenas().used() && bytes > one_round_limit(exchange.shape())) {
    InPlaceReduce::tell(exchange, data, bytes);
    exchange.sync();
    if (InPlaceReduce::everyone_can(exchange)) return InPlaceReduce(exchange, dtype, data, elements).run(op);
  }
  run_reduce(exchange, dtype, op, data, elements, kEveryone);
}

void run_reduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements, int root) {
  if (elements * size_of(dtype) <= one_round_limit(exchange.shape()))
    reduce_short(exchange, dtype, op, data, elements, root);
  else
    LongReduce(exchange, dtype, op, data, elements, root).run();
}

void run_reduce_scatter(Exchange& exchange, DType dtype, ReduceOp op, const std::byte* input, Sizes sizes,
                        std::byte* output) {
  const size_t width = size_of(dtype);
  const auto me = static_cast<size_t>(exchange.me().rank);
  const size_t part = part_bytes(exchange.shape());
  std::vector<const std::byte*> sources(sizes.size());
  for (size_t i = 0; i < pieces(longest(sizes), part / width); ++i) {
    const auto piece = [&](size_t rank) { return piece_of(sizes[rank], part / width, i); };
    const auto own = [&](size_t rank) { return input + (offset_of(sizes, rank) + piece(rank).begin) * width; };
    for (size_t rank = 0; rank < sizes.size(); ++rank)
      if (rank != me) stream_copy(exchange.my_in() + rank * part, own(rank), piece(rank).size() * width);
    exchange.sync();
    for (size_t rank = 0; rank < sizes.size(); ++rank)
      sources[rank] = rank == me ? own(me) : exchange.in_of(static_cast<int>(rank)) + me * part;
    reduce(dtype, op, sources, piece(me).size(), output + piece(me).begin * width);
  }
}

}  // namespace trireme::comm::shm
