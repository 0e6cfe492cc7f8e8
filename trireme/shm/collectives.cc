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
// Both ways join the contributions of an element in rank order, in one place or in R places alike: all ranks get the
// same bits, every run gets the same bits, and the choice of the way does not change them.
//
// broadcast, all_gather: one round per piece; the two buffers let the writer fill one while the others read the other.
// reduce_scatter: one round per piece; a rank's `in` area holds R parts, one for each receiver.
#include "trireme/shm/collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/shm/reduce.h"

namespace trireme::shm {
namespace {

constexpr size_t kShort = size_t{64} << 10;  // what may be read from the others in one go

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

// An empty tensor still takes one round, in which the ranks meet and compare their operations.
size_t pieces(size_t total, size_t piece) {
  return total == 0 ? 1 : (total + piece - 1) / piece;
}

Range piece_of(size_t total, size_t piece, size_t index) {
  return {std::min(total, piece * index), std::min(total, piece * (index + 1))};
}

void all_reduce_short(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements) {
  copy_bytes(exchange.my_in(), data, elements * size_of(dtype));
  exchange.sync();
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < exchange.me().size; ++rank) sources.push_back(exchange.in_of(rank));
  reduce(dtype, op, sources, elements, data);
}

class LongAllReduce {
 public:
  LongAllReduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements)
      : exchange_(exchange),
        me_(exchange.me()),
        dtype_(dtype),
        op_(op),
        width_(size_of(dtype)),
        data_(data),
        elements_(elements),
        piece_(exchange.shape().piece_bytes / width_),
        sources_(static_cast<size_t>(me_.size)) {}

  void run() {
    const size_t count = pieces(elements_, piece_);
    for (size_t step = 0; step <= count; ++step) {
      if (step < count) stage(step);
      if (step > 0) reduce_slice(step - 1);
      exchange_.sync();
      if (step > 0) collect(step - 1);
    }
  }

 private:
  std::byte* at(size_t element) const { return data_ + element * width_; }
  Range slice(const Range& piece, int rank) const { return slice_of(piece.size(), me_.size, rank); }

  void stage(size_t index) {
    const Range piece = piece_of(elements_, piece_, index);
    const Range mine = slice(piece, me_.rank);
    copy_bytes(exchange_.my_in(), at(piece.begin), mine.begin * width_);
    copy_bytes(exchange_.my_in() + mine.end * width_, at(piece.begin + mine.end), (piece.size() - mine.end) * width_);
  }

  void reduce_slice(size_t index) {
    const Range piece = piece_of(elements_, piece_, index);
    const Range mine = slice(piece, me_.rank);
    std::byte* result = at(piece.begin + mine.begin);
    for (int rank = 0; rank < me_.size; ++rank)
      sources_[static_cast<size_t>(rank)] = rank == me_.rank ? result : exchange_.in_of(rank) + mine.begin * width_;
    reduce(dtype_, op_, sources_, mine.size(), result);
    copy_bytes(exchange_.my_out(), result, mine.size() * width_);
  }

  void collect(size_t index) {
    const Range piece = piece_of(elements_, piece_, index);
    for (int rank = 0; rank < me_.size; ++rank) {
      const Range theirs = slice(piece, rank);
      if (rank != me_.rank) copy_bytes(at(piece.begin + theirs.begin), exchange_.out_of(rank), theirs.size() * width_);
    }
  }

  Exchange& exchange_;
  const RankInfo me_;
  const DType dtype_;
  const ReduceOp op_;
  const size_t width_;
  std::byte* const data_;
  const size_t elements_;
  const size_t piece_;  // in elements
  std::vector<const std::byte*> sources_;
};

}  // namespace

size_t one_round_limit(const Shape& shape) {
  return std::min(shape.piece_bytes, kShort / static_cast<size_t>(std::max(1, shape.ranks - 1)));
}

void run_all_reduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements) {
  if (elements * size_of(dtype) <= one_round_limit(exchange.shape()))
    all_reduce_short(exchange, dtype, op, data, elements);
  else
    LongAllReduce(exchange, dtype, op, data, elements).run();
}

void run_broadcast(Exchange& exchange, std::byte* data, size_t bytes, int root) {
  const bool sends = exchange.me().rank == root;
  const size_t piece_bytes = exchange.shape().piece_bytes;
  for (size_t i = 0; i < pieces(bytes, piece_bytes); ++i) {
    const Range piece = piece_of(bytes, piece_bytes, i);
    if (sends) copy_bytes(exchange.my_in(), data + piece.begin, piece.size());
    exchange.sync();
    if (!sends) copy_bytes(data + piece.begin, exchange.in_of(root), piece.size());
  }
}

void run_all_gather(Exchange& exchange, const std::byte* input, std::span<const size_t> bytes, std::byte* output) {
  const auto me = static_cast<size_t>(exchange.me().rank);
  const size_t piece_bytes = exchange.shape().piece_bytes;
  const size_t longest = *std::max_element(bytes.begin(), bytes.end());
  for (size_t i = 0; i < pieces(longest, piece_bytes); ++i) {
    const Range mine = piece_of(bytes[me], piece_bytes, i);
    copy_bytes(exchange.my_in(), input + mine.begin, mine.size());
    exchange.sync();
    std::byte* place = output;
    for (size_t rank = 0; rank < bytes.size(); place += bytes[rank++]) {
      const Range theirs = piece_of(bytes[rank], piece_bytes, i);
      copy_bytes(place + theirs.begin, rank == me ? input + mine.begin : exchange.in_of(static_cast<int>(rank)),
                 theirs.size());
    }
  }
}

void run_reduce_scatter(Exchange& exchange, DType dtype, ReduceOp op, const std::byte* input, size_t elements,
                        std::byte* output) {
  const size_t width = size_of(dtype);
  const auto ranks = static_cast<size_t>(exchange.me().size);
  const auto me = static_cast<size_t>(exchange.me().rank);
  const size_t part = exchange.shape().piece_bytes / ranks / 64 * 64;  // bytes of the `in` area for one receiver
  std::vector<const std::byte*> sources(ranks);
  for (size_t i = 0; i < pieces(elements, part / width); ++i) {
    const Range piece = piece_of(elements, part / width, i);
    const auto own = [&](size_t rank) { return input + (rank * elements + piece.begin) * width; };
    for (size_t rank = 0; rank < ranks; ++rank)
      if (rank != me) copy_bytes(exchange.my_in() + rank * part, own(rank), piece.size() * width);
    exchange.sync();
    for (size_t rank = 0; rank < ranks; ++rank)
      sources[rank] = rank == me ? own(me) : exchange.in_of(static_cast<int>(rank)) + me * part;
    reduce(dtype, op, sources, piece.size(), output + piece.begin * width);
  }
}

}  // namespace trireme::shm
