// The words round, piece, in and part are those of exchange.h. What a rank gives to itself never passes through shared
// memory.
//
// broadcast, all_gather, gather: one round per piece; the two buffers let the writer fill one while the others read the
// other.
// scatter: the same, with the root's `in` area in R parts, one for each receiver.
// all_to_all: one round in which everyone shows what it sends and expects, so that all find the same disagreement and
// know the longest part; then one round per piece, with everyone's `in` area in R parts.
#include <vector>

#include "trireme/comm/engine/shm/collectives.h"
#include "trireme/comm/engine/shm/pieces.h"
#include "trireme/comm/engine/shm/stream.h"

namespace trireme::comm::shm {
namespace {

// What everyone sends to everyone, in elements.
class CountTable {
 public:
  /// Takes one round.
  CountTable(Exchange& exchange, Sizes sent, Sizes received) : ranks_(sent.size()) {
    auto* mine = reinterpret_cast<size_t*>(exchange.my_in());
    std::copy(sent.begin(), sent.end(), mine);
    std::copy(received.begin(), received.end(), mine + ranks_);
    exchange.sync();
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const auto* theirs = reinterpret_cast<const size_t*>(exchange.in_of(static_cast<int>(rank)));
      table_.insert(table_.end(), theirs, theirs + 2 * ranks_);
    }
  }

  void check(const Exchange& exchange) const {
    if (const auto mismatch = find_mismatch(exchange.operation(), table_, ranks_, exchange.names()))
      throw Disagreement("{}", *mismatch);
  }

  size_t longest_part() const {
    size_t result = 0;
    for (size_t from = 0; from < ranks_; ++from)
      for (size_t to = 0; to < ranks_; ++to)
        if (from != to) result = std::max(result, sent(from, to));
    return result;
  }

 private:
  size_t sent(size_t from, size_t to) const { return table_[from * 2 * ranks_ + to]; }

  const size_t ranks_;
  std::vector<size_t> table_;
};

}  // namespace

void run_broadcast(Exchange& exchange, std::byte* data, size_t bytes, int root) {
  const bool sends = exchange.me().rank == root;
  const size_t piece_bytes = exchange.shape().piece_bytes;
  for (size_t i = 0; i < pieces(bytes, piece_bytes); ++i) {
    const Range piece = piece_of(bytes, piece_bytes, i);
    if (sends) stream_copy(exchange.my_in(), data + piece.begin, piece.size());
    exchange.sync();
    if (!sends) copy_bytes(data + piece.begin, exchange.in_of(root), piece.size());
  }
}

void run_gather(Exchange& exchange, const std::byte* input, Sizes sizes, std::byte* output, int root) {
  const auto me = static_cast<size_t>(exchange.me().rank);
  const bool alone_collects = exchange.me().rank == root;
  const size_t piece_bytes = exchange.shape().piece_bytes;
  for (size_t i = 0; i < pieces(longest(sizes), piece_bytes); ++i) {
    const Range mine = piece_of(sizes[me], piece_bytes, i);
    if (!alone_collects) stream_copy(exchange.my_in(), input + mine.begin, mine.size());
    exchange.sync();
    if (!alone_collects && root != kEveryone) continue;
    std::byte* place = output;
    for (size_t rank = 0; rank < sizes.size(); place += sizes[rank++]) {
      const Range theirs = piece_of(sizes[rank], piece_bytes, i);
      copy_bytes(place + theirs.begin, rank == me ? input + mine.begin : exchange.in_of(static_cast<int>(rank)),
                 theirs.size());
    }
  }
}

void run_scatter(Exchange& exchange, const std::byte* input, Sizes sizes, std::byte* output, int root) {
  const auto me = static_cast<size_t>(exchange.me().rank);
  const bool sends = exchange.me().rank == root;
  const size_t part = part_bytes(exchange.shape());
  if (sends) copy_bytes(output, input + offset_of(sizes, me), sizes[me]);
  for (size_t i = 0; i < pieces(longest(sizes), part); ++i) {
    const auto piece = [&](size_t rank) { return piece_of(sizes[rank], part, i); };
    for (size_t rank = 0; sends && rank < sizes.size(); ++rank)
      if (rank != me)
        stream_copy(exchange.my_in() + rank * part, input + offset_of(sizes, rank) + piece(rank).begin,
                    piece(rank).size());
    exchange.sync();
    if (!sends) copy_bytes(output + piece(me).begin, exchange.in_of(root) + me * part, piece(me).size());
  }
}

void run_all_to_all(Exchange& exchange, size_t width, const std::byte* input, Sizes sent, std::byte* output,
                    Sizes received) {
  const CountTable table(exchange, sent, received);
  table.check(exchange);
  const size_t longest_part = table.longest_part();
  const auto me = static_cast<size_t>(exchange.me().rank);
  const size_t part = part_bytes(exchange.shape());
  const size_t step = part / width;  // elements
  copy_bytes(output + offset_of(received, me) * width, input + offset_of(sent, me) * width, sent[me] * width);
  for (size_t begin = 0, i = 0; begin < longest_part; begin += step, ++i) {
    for (size_t to = 0; to < sent.size(); ++to) {
      const Range piece = piece_of(sent[to], step, i);
      if (to != me)
        stream_copy(exchange.my_in() + to * part, input + (offset_of(sent, to) + piece.begin) * width,
                    piece.size() * width);
    }
    exchange.sync();
    for (size_t from = 0; from < received.size(); ++from) {
      const Range piece = piece_of(received[from], step, i);
      if (from != me)
        copy_bytes(output + (offset_of(received, from) + piece.begin) * width,
                   exchange.in_of(static_cast<int>(from)) + me * part, piece.size() * width);
    }
  }
}

}  // namespace trireme::comm::shm
