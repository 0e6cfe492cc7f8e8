#include "trireme/comm/engine/shm/rendezvous.h"

#include <fmt/core.h>

#include <string_view>

#include "trireme/core/error.h"

namespace trireme::comm::shm {
namespace {

constexpr const char* kGo = "go";
constexpr const char* kAgain = "again";
constexpr std::string_view kRefused = "refused: ";  // begins the text that stands in the place of a path or a verdict

std::string refusal(std::string_view reason) {
  return fmt::format("{}{}", kRefused, reason);
}

// The keys of one attempt.
class Attempt {
 public:
  Attempt(Store& store, const std::string& prefix, size_t number, const WaitForKey& wait)
      : store_(store), prefix_(fmt::format("{}segment/{}/", prefix, number)), wait_(wait) {}

  void offer(const std::string& path) { store_.set(prefix_ + "path", path); }
  std::string offered() { return wait("path"); }
  void answer(int rank, const std::string& text) { store_.set(prefix_ + std::to_string(rank), text); }
  void decide(const std::string& verdict) { store_.set(prefix_ + "verdict", verdict); }
  std::string verdict() { return wait("verdict"); }

  /// "" when all ranks have attached, else the first that could not, and why.
  std::string first_complaint(int ranks) {
    std::string complaint;
    for (int rank = 1; rank < ranks; ++rank) {
      const std::string text = wait(std::to_string(rank));
      if (complaint.empty() && text != kGo) complaint = fmt::format("rank {}: {}", rank, text);
    }
    return complaint;
  }

 private:
  std::string wait(const std::string& key) { return wait_(prefix_ + key); }

  Store& store_;
  const std::string prefix_;
  const WaitForKey& wait_;
};

SegmentFile make_file(FileKind kind, size_t bytes) {
  return kind == FileKind::anonymous ? SegmentFile::anonymous(bytes) : SegmentFile::named(bytes);
}

// The segment, or nothing when a rank could not open it.
std::shared_ptr<Segment> lead(Attempt& attempt, FileKind kind, const Shape& shape, bool last) {
  const SegmentFile file = make_file(kind, shape.total_bytes());
  std::shared_ptr<Segment> segment = Segment::format(file.fd(), shape);
  attempt.offer(file.path());
  const std::string complaint = attempt.first_complaint(shape.ranks);
  if (complaint.empty()) {
    attempt.decide(kGo);
    return segment;
  }
  attempt.decide(last ? refusal(complaint) : kAgain);
  if (last) throw PeerError("no shared memory for {} ranks: {}", shape.ranks, complaint);
  return nullptr;
}

// The others must not wait for a path that never comes.
std::shared_ptr<Segment> lead_or_tell(Attempt& attempt, FileKind kind, const Shape& shape, bool last) {
  try {
    return lead(attempt, kind, shape, last);
  } catch (const SystemError& error) {
    attempt.offer(refusal(error.what()));
    throw;
  }
}

std::shared_ptr<Segment> try_attach(const std::string& path, const Shape& shape, std::string& answer) {
  try {
    auto segment = Segment::attach(open_segment(path).get(), shape);
    answer = kGo;
    return segment;
  } catch (const Error& error) {
    answer = error.what();
    return nullptr;
  }
}

std::shared_ptr<Segment> follow(Attempt& attempt, RankInfo me, const Shape& shape) {
  const std::string path = attempt.offered();
  if (path.starts_with(kRefused)) throw PeerError("rank 0 has no shared memory: {}", path.substr(kRefused.size()));
  std::string answer;
  std::shared_ptr<Segment> segment = try_attach(path, shape, answer);
  attempt.answer(me.rank, answer);
  const std::string verdict = attempt.verdict();
  if (verdict.starts_with(kRefused))
    throw PeerError("no shared memory for {} ranks: {}", me.size, verdict.substr(kRefused.size()));
  return verdict == kGo ? segment : nullptr;
}

}  // namespace

std::shared_ptr<Segment> meet(Store& store, const std::string& prefix, RankInfo me, const Shape& shape,
                              const FileKinds& kinds, const WaitForKey& wait) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    Attempt attempt(store, prefix, i, wait);
    const bool last = i + 1 == kinds.size();
    auto segment = me.rank == 0 ? lead_or_tell(attempt, kinds[i], shape, last) : follow(attempt, me, shape);
    if (segment) return segment;
  }
  throw PeerError("rank {}: no kind of shared memory is left to try", me.rank);
}

std::shared_ptr<Segment> meet(Store& store, const std::string& prefix, RankInfo me, const Shape& shape,
                              const FileKinds& kinds, Deadline deadline) {
  return meet(store, prefix, me, shape, kinds, [&](const std::string& key) { return store.get(key, deadline); });
}

}  // namespace trireme::comm::shm
