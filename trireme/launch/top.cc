#include "trireme/launch/top.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "trireme/core/memory.h"
#include "trireme/launch/progress_line.h"

namespace trireme::launch {
namespace {

constexpr int64_t kOldMs = 5'000;   // a launcher writes once a second
constexpr size_t kMinRankRows = 3;  // shown even where a verdict has more to say
constexpr size_t kColumnGap = 2;    // between columns
constexpr size_t kUseful = 12;      // of the last column

// Code points, which is what a terminal counts for everything that occurs here.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string percent(double share) {
  return share >= 0 ? fmt::format("{:.0f}%", 100 * share) : kNoNumber;
}

std::string state_of(const RankView& rank) {
  if (rank.ended) return rank.failed ? "failed" : "ended";
  return rank.state.empty() ? kNoNumber : rank.state;
}

std::string activity_of(const RankView& rank) {
  if (rank.ended) return rank.state;
  if (rank.waits_ms <= 0) return rank.activity;
  return fmt::format("{} for {:.1f} s", rank.activity, static_cast<double>(rank.waits_ms) / 1000);
}

std::string count_of(int count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

struct Column {
  const char* title;
  int weight;  // the lightest are left out first
  bool to_the_left;
  std::vector<std::string> cells = {};
  size_t width() const {
    size_t width = width_of(title);
    for (const std::string& cell : cells) width = std::max(width, width_of(cell));
    return width;
  }
};

std::vector<Column> columns_of(const std::vector<const RankView*>& ranks) {
  const bool counts = std::any_of(ranks.begin(), ranks.end(), [](auto* rank) { return rank->samples_per_second >= 0; });
  std::vector<Column> columns{{"rank", 9, false},
                              {"pid", 3, false},
                              {"state", 5, true},
                              {"host", 7, true},
                              {"device", 2, true},
                              {"step", 9, false},
                              {counts ? "samples/s" : "steps/s", 8, false},
                              {"loss", 8, false},
                              {"comp", 6, false},
                              {"comm", 6, false},
                              {"data", 6, false},
                              {"CPU", 1, false},
                              {"memory", 4, false}};
  for (const RankView* rank : ranks) {
    const Shares shares = rank->records ? rank->shares : Shares{.compute = -1, .communication = -1, .data = -1};
    const std::string cells[] = {std::to_string(rank->rank),
                                 rank->pid == 0 ? kNoNumber : std::to_string(rank->pid),
                                 state_of(*rank),
                                 rank->host,
                                 rank->device,
                                 rank->step < 0 ? kNoNumber : std::to_string(rank->step),
                                 speed_text(counts ? rank->samples_per_second : rank->steps_per_second),
                                 loss_text(rank->values),
                                 percent(shares.compute),
                                 percent(shares.communication),
                                 percent(shares.data),
                                 percent(rank->cpu),
                                 rank->memory < 0 ? kNoNumber : bytes_text(rank->memory)};
    for (size_t i = 0; i < columns.size(); ++i) columns[i].cells.push_back(clipped(cells[i], 16));
  }
  return columns;
}

size_t width_of(const std::vector<Column>& columns) {
  size_t width = 0;
  for (const Column& column : columns) width += column.width() + kColumnGap;
  return width;
}

void drop_the_lightest(std::vector<Column>& columns, size_t width) {
  while (columns.size() > 1 && width_of(columns) - kColumnGap > width)
    columns.erase(std::min_element(columns.begin(), columns.end(),
                                   [](const Column& a, const Column& b) { return a.weight < b.weight; }));
}

std::string line_of(const std::vector<Column>& columns, const std::string& last, auto cell_of) {
  std::string line;
  for (const Column& column : columns) {
    const std::string cell = cell_of(column);
    const std::string space(column.width() - width_of(cell), ' ');
    line += (column.to_the_left ? cell + space : space + cell) + std::string(kColumnGap, ' ');
  }
  line += last;
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::vector<std::string> table_of(const std::vector<const RankView*>& ranks, size_t width) {
  std::vector<Column> columns = columns_of(ranks);
  drop_the_lightest(columns, width);
  const bool room = width_of(columns) + kUseful <= width;
  std::vector<std::string> lines{line_of(columns, room ? "now" : "", [](const Column& c) { return c.title; })};
  for (size_t i = 0; i < ranks.size(); ++i)
    lines.push_back(
        line_of(columns, room ? activity_of(*ranks[i]) : "", [&](const Column& column) { return column.cells[i]; }));
  return lines;
}

std::vector<std::string> heading_of(const JobView& job, const JobTotals& totals, int64_t now_ms) {
  std::string first = fmt::format("{}: {} {} {}, {} on {}", job.job_id, job.state,
                                  job.state == "running" ? "for" : "after", duration_text(job.now_ms - job.started_ms),
                                  count_of(job.world_size, "rank"), count_of(job.nodes, "node"));
  if (job.restarts > 0) first += fmt::format(", {}", count_of(job.restarts, "restart"));
  if (job.state == "running" && now_ms - job.now_ms > kOldMs)
    first += fmt::format("; no news from the launcher for {} s", (now_ms - job.now_ms) / 1000);
  std::string second = progress_words(totals);
  if (totals.step >= 0)
    second += fmt::format("; compute {:.0f} %, communication {:.0f} %, data {:.0f} %", 100 * totals.shares.compute,
                          100 * totals.shares.communication, 100 * totals.shares.data);
  return {first, second + slowest_words(totals), ""};
}

std::vector<std::string> verdict_of(const JobView& job) {
  if (job.verdict.words.empty()) return {};
  std::vector<std::string> lines{"", job.verdict.words};
  for (const std::string& detail : job.verdict.details) lines.push_back("  " + detail);
  lines.push_back(job.verdict.advice);
  return lines;
}

// Failed ranks, those that others wait for, then those that are behind; ranks that have ended well last.
std::vector<const RankView*> worst_first(const JobView& job, const JobTotals& totals) {
  const auto badness = [&](const RankView* rank) {
    const int kind = rank->failed                        ? 0
                     : job.verdict.culprit == rank->rank ? 1
                     : totals.slowest == rank->rank      ? 2
                     : rank->ended                       ? 4
                                                         : 3;
    return std::tuple(kind, rank->step, rank->shares.communication, rank->rank);
  };
  std::vector<const RankView*> ranks;
  for (const RankView& rank : job.ranks) ranks.push_back(&rank);
  std::sort(ranks.begin(), ranks.end(), [&](auto* a, auto* b) { return badness(a) < badness(b); });
  return ranks;
}

}  // namespace

std::vector<std::string> top_lines(const JobView& job, const TopSize& size, int64_t now_ms) {
  const JobTotals totals = totals_of(job.ranks);
  std::vector<std::string> lines = heading_of(job, totals, now_ms);
  std::vector<std::string> verdict = verdict_of(job);
  const size_t taken = lines.size() + 1;  // with the table's own heading
  size_t room = size.rows - std::min(size.rows, taken + verdict.size());
  room = std::max(room, std::min(kMinRankRows, size.rows - std::min(size.rows, taken)));
  std::vector<const RankView*> ranks;
  for (const RankView& rank : job.ranks) ranks.push_back(&rank);
  std::string rest;
  if (ranks.size() > room) {
    const size_t shown = std::max<size_t>(room, 2) - 1;
    ranks = worst_first(job, totals);
    rest = fmt::format("… {} of {} ranks are not shown; the worst are above",
                       ranks.size() - std::min(shown, ranks.size()), ranks.size());
    ranks.resize(std::min(shown, ranks.size()));
  }
  for (std::string& line : table_of(ranks, size.columns)) lines.push_back(std::move(line));
  if (!rest.empty()) lines.push_back(rest);
  lines.insert(lines.end(), verdict.begin(), verdict.end());
  lines.resize(std::min(lines.size(), size.rows));
  for (std::string& line : lines) line = clipped(line, size.columns);
  return lines;
}

}  // namespace trireme::launch
